import type { ValidationPipeOptions } from '@nestjs/common';
import { notReceived, type EventCommitter } from './replay/event-commit.js';

/**
 * What the receiver keeps with an event, out of its handlers' sight. A member of the event, not a WeakMap beside it: the garbage
 * collector takes the values of one for alive, and with them each event's claims and data (benchmark `receive`).
 */
export class EventKeeping {
  /** Who records the event in a transaction; an event that is not being received has nobody. */
  committer: EventCommitter = notReceived;

  /** @param validation - how its data is validated */
  constructor(readonly validation: ValidationPipeOptions | false = false) {}
}
