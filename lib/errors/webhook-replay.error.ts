import { WebhookError } from './webhook.error.js';

/**
 * `replayed`: the id was seen, done or with other content. `in_progress`: it is being handled now.
 * `lease_lost`: the handler has held the event for longer than it could, and another may be at it.
 * `unsupported_option`: the event cannot be recorded in a transaction, by this store or by this handler.
 */
export type WebhookReplayErrorCode =
  'replayed' | 'in_progress' | 'lease_lost' | 'unsupported_option';

/** The event was presented before, or cannot be recorded as handled. */
export class WebhookReplayError extends WebhookError<WebhookReplayErrorCode> {}
