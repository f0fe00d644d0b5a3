import { EventEmitter, once } from 'node:events';
import { Injectable } from '@nestjs/common';
import type { WebhookEvent } from 'nestjs-webhook-token';
import { fingerprintOf } from '../fingerprint.js';
import type { HandlerRun, ReceiverSkills } from '../skills.js';

/** Records every handler run, so that the demo can compare it with the data that was sent. */
@Injectable()
export class Logbook implements ReceiverSkills {
  private readonly runs: HandlerRun[] = [];
  private readonly entries = new EventEmitter();

  enter(event: WebhookEvent, succeeded: boolean): void {
    // DEMO_LOSE drops an event on purpose, to show that the demo detects the loss.
    if (event.event === process.env.DEMO_LOSE) return;
    const { id, jti, method, contentType } = event;
    this.runs.push({ id, jti, method, contentType, succeeded, ...fingerprintOf(event.data) });
    this.entries.emit(id);
  }

  runsFor(id: string): readonly HandlerRun[] {
    return this.runs.filter((run) => run.id === id);
  }

  async runsUntilHandled(id: string): Promise<readonly HandlerRun[]> {
    while (!this.runsFor(id).some(({ succeeded }) => succeeded)) await once(this.entries, id);
    return this.runsFor(id);
  }
}
