import { WebhookError } from './webhook.error.js';

/** `replayed`: the id was seen, done or with other content. `in_progress`: it is being handled now. */
export type WebhookReplayErrorCode = 'replayed' | 'in_progress';

/** The event was presented before. */
export class WebhookReplayError extends WebhookError<WebhookReplayErrorCode> {}
