import { refuseUnconfigured as refuse } from './refuse-unconfigured.js';
import type { WebhookEndpoints } from '../endpoints/webhook.endpoints.js';

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
