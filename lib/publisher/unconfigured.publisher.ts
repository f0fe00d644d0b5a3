import type { WebhookDeliveries } from '../deliveries/webhook.deliveries.js';
import type { WebhookEndpoints } from '../endpoints/webhook.endpoints.js';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import type { WebhookPublisher } from './webhook.publisher.js';

type Methods<Service> = { readonly [Name in keyof Service]: () => Promise<never> };

/**
 * Replaces a service of a module without `publisher` options: every method rejects, so that no event is lost silently.
 *
 * @param methods - an object with a member for each method
 */
function unconfigured<Service>(
  methods: Readonly<Record<keyof Service & string, true>>,
): Methods<Service> {
  const reject = async (): Promise<never> => {
    throw new WebhookConfigurationError([
      {
        path: 'publisher',
        message:
          'is not configured, so nothing is sent: add "publisher" to the options of WebhookModule',
      },
    ]);
  };
  return Object.fromEntries(Object.keys(methods).map((name) => [name, reject])) as Methods<Service>;
}

export const UNCONFIGURED_PUBLISHER = unconfigured<
  Pick<WebhookPublisher, 'publish' | 'send' | 'sign'>
>({ publish: true, send: true, sign: true });

export const UNCONFIGURED_ENDPOINTS = unconfigured<WebhookEndpoints>({
  create: true,
  get: true,
  list: true,
  update: true,
  delete: true,
  disable: true,
  enable: true,
  pause: true,
  resume: true,
  rotateKey: true,
  circuit: true,
  test: true,
  reseal: true,
});

export const UNCONFIGURED_DELIVERIES = unconfigured<WebhookDeliveries>({
  list: true,
  get: true,
  payload: true,
  redeliver: true,
  stats: true,
  prune: true,
});
