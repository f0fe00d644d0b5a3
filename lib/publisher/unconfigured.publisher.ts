import type { WebhookDeliveries } from '../deliveries/webhook.deliveries.js';
import type { WebhookEndpoints } from '../endpoints/webhook.endpoints.js';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import type { WebhookPublisher } from './webhook.publisher.js';

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

/** Answers for what the module cannot do without `publisher` options. */
async function refuseUnconfigured(): Promise<never> {
  throw new WebhookConfigurationError([
    {
      path: 'publisher',
      message: 'nothing can be published without it: give WebhookModule.forRoot a publisher',
    },
  ]);
}

type Verbs = { readonly [Name in keyof WebhookEndpoints]: () => Promise<never> };

/** What is injected where the module was given no `publisher` options: it says so. */
export class UnconfiguredEndpoints implements Verbs {
  readonly create = refuse;
  readonly get = refuse;
  readonly list = refuse;
  readonly update = refuse;
  readonly delete = refuse;
  readonly disable = refuse;
  readonly enable = refuse;
  readonly rotateKey = refuse;
  readonly test = refuse;
  readonly reseal = refuse;
}

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
