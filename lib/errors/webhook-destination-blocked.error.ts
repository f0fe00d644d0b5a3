import { WebhookError } from './webhook.error.js';

/** The egress guard refuses the URL, or an address it resolves to. */
export class WebhookDestinationBlockedError extends WebhookError<'destination_blocked'> {
  constructor(message: string) {
    super('destination_blocked', message);
  }
}
