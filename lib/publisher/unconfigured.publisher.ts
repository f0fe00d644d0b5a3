import { WebhookConfigurationError } from '../errors/webhook-configuration.error.js';
import type { WebhookPublisher } from './webhook.publisher.js';

/** What is injected where the module was given no `publisher` options: it says so instead of losing events. */
export class UnconfiguredPublisher implements Pick<WebhookPublisher, 'publish' | 'send' | 'sign'> {
  publish(): Promise<never> {
    return refuse();
  }

  send(): Promise<never> {
    return refuse();
  }

  sign(): Promise<never> {
    return refuse();
  }
}

async function refuse(): Promise<never> {
  throw new WebhookConfigurationError([
    {
      path: 'publisher',
      message: 'nothing can be published without it: give WebhookModule.forRoot a publisher',
    },
  ]);
}
