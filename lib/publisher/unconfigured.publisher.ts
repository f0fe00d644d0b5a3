import { refuseUnconfigured } from './refuse-unconfigured.js';
import type { WebhookPublisher } from './webhook.publisher.js';

/** What is injected where the module was given no `publisher` options: it says so instead of losing events. */
export class UnconfiguredPublisher implements Pick<WebhookPublisher, 'publish' | 'send' | 'sign'> {
  publish(): Promise<never> {
    return refuseUnconfigured();
  }

  send(): Promise<never> {
    return refuseUnconfigured();
  }

  sign(): Promise<never> {
    return refuseUnconfigured();
  }
}
