import { WebhookReplayError } from '../../errors/webhook-replay.error.js';

/** Records an event as handled in a transaction. */
export interface EventCommitter {
  commitIn(tx: unknown): Promise<void>;
}

/** Of an event that no receiver holds. */
export const notReceived: EventCommitter = refusing(
  'the event was not received by a receiver, so there is no record of it to commit',
);

/**
 * Of an event that several handlers take. Recorded by one of them, it would count as handled though another fails, and that
 * one would never run again.
 */
export function sharedBy(handlers: number): EventCommitter {
  return refusing(
    `${handlers} handlers take this event, and one alone cannot record it as handled: commit it in one handler that does the work of all of them, or leave it to the receiver`,
  );
}

function refusing(message: string): EventCommitter {
  return {
    commitIn: async () => {
      throw new WebhookReplayError('unsupported_option', message);
    },
  };
}
