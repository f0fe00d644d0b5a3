import { WebhookReplayError } from '../../errors/webhook-replay.error.js';

/** Records an event as handled in a transaction. */
export type Committer = (tx: unknown) => Promise<void>;

// An event is made before its place in the replay store is known, and handlers see the event alone; so whoever holds
// the place leaves word here.
const committers = new WeakMap<object, Committer>();

/** Says how an event is recorded in a transaction. */
export function keepCommitter(event: object, commit: Committer): void {
  committers.set(event, commit);
}

/** How an event is recorded in a transaction; one that is not being received has nowhere to be recorded. */
export function committerOf(event: object): Committer {
  return committers.get(event) ?? notReceived;
}

/**
 * Says that several handlers take an event. Recorded by one of them, it would count as handled though another fails, and that
 * one would never run again.
 */
export function refuseCommit(event: object, handlers: number): void {
  committers.set(event, async () => {
    throw new WebhookReplayError(
      'unsupported_option',
      `${handlers} handlers take this event, and one alone cannot record it as handled: commit it in one handler that does the work of all of them, or leave it to the receiver`,
    );
  });
}

async function notReceived(): Promise<never> {
  throw new WebhookReplayError(
    'unsupported_option',
    'the event was not received by a receiver, so there is no record of it to commit',
  );
}
