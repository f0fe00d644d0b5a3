import { WebhookConfigurationError } from '../errors/webhook-configuration.error.js';
import type { WebhookDeliveries } from '../deliveries/webhook.deliveries.js';

type Methods = Pick<
  WebhookDeliveries,
  'list' | 'get' | 'payload' | 'redeliver' | 'stats' | 'prune'
>;

/** What is injected where the module was given no `publisher` options: there are no deliveries to look at. */
export class UnconfiguredDeliveries implements Methods {
  list(): Promise<never> {
    return refuse();
  }

  get(): Promise<never> {
    return refuse();
  }

  payload(): Promise<never> {
    return refuse();
  }

  redeliver(): Promise<never> {
    return refuse();
  }

  stats(): Promise<never> {
    return refuse();
  }

  prune(): Promise<never> {
    return refuse();
  }
}

async function refuse(): Promise<never> {
  throw new WebhookConfigurationError([
    {
      path: 'publisher',
      message: 'nothing is delivered without it: give WebhookModule.forRoot a publisher',
    },
  ]);
}
