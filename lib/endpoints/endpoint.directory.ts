import { WebhookDeliveryError } from '../errors/webhook.error.js';
import { isIdentifier } from '../token/identifier.js';
import { type EndpointStore, type StoredEndpoint, unknownEndpoint } from './endpoint-store.js';
import { type EndpointScope, isInScope } from './endpoint.editor.js';
import type { OptionsEndpointStore } from './options-endpoint.store.js';
import type {
  EndpointListRequest,
  EndpointPage,
  WebhookEndpointView,
} from './webhook-endpoint.interface.js';

/** What is shown of an endpoint: all but its sealed keys. Copies, so that nobody changes what the publisher goes by. */
export function endpointView(
  endpoint: StoredEndpoint,
  source: WebhookEndpointView['source'],
): WebhookEndpointView {
  const { id, tenant, url, events, description, metadata, settings, keys, disabled } = endpoint;
  return {
    id,
    ...(tenant !== undefined && { tenant }),
    url,
    events: [...events],
    ...(description !== undefined && { description }),
    ...(metadata !== undefined && { metadata: { ...metadata } }),
    settings: {
      ...settings,
      ...(settings.headers !== undefined && { headers: { ...settings.headers } }),
    },
    keys: keys.map(({ kid, notBefore }) => ({ kid, signsFrom: new Date(notBefore) })),
    ...(disabled !== undefined && {
      disabled: { at: new Date(disabled.at), reason: disabled.reason },
    }),
    source,
    ...(source === 'store' && {
      createdAt: new Date(endpoint.createdAt),
      updatedAt: new Date(endpoint.updatedAt),
    }),
    version: endpoint.version,
  };
}

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 1_000;

interface Found {
  readonly endpoint: StoredEndpoint;
  readonly source: WebhookEndpointView['source'];
}

/** Reads the endpoints of the options and of the store as one. Where both have an id, the options win. */
export class EndpointDirectory {
  constructor(
    private readonly configured: OptionsEndpointStore,
    private readonly store: EndpointStore,
  ) {}

  /** @throws {@link WebhookDeliveryError} `unknown_endpoint`, also for an endpoint outside of the scope */
  async find(id: string, scope: EndpointScope | undefined): Promise<Found> {
    const configured = await this.configured.find(id);
    const endpoint = configured ?? (await this.store.find(id));
    if (endpoint === undefined || !isInScope(endpoint, scope)) throw unknownEndpoint();
    return { endpoint, source: configured === undefined ? 'store' : 'options' };
  }

  /** @throws {@link WebhookDeliveryError} `invalid_option` */
  async list(request: EndpointListRequest): Promise<EndpointPage> {
    const { tenant, after, limit } = checked(request);
    const page = { tenant, after, limit: limit + 1 };
    const [configured, stored] = await Promise.all([
      this.configured.list(page),
      this.store.list(page),
    ]);
    const endpoints = [
      ...configured.map((endpoint): Found => ({ endpoint, source: 'options' })),
      ...stored
        .filter(({ id }) => !this.configured.has(id))
        .map((endpoint): Found => ({ endpoint, source: 'store' })),
    ].sort((a, b) => (a.endpoint.id < b.endpoint.id ? -1 : 1));
    const shown = endpoints.slice(0, limit);
    // A page of the store that is all hidden behind the options is not its last one.
    const hidden = stored.length > limit ? stored.at(-1)!.id : undefined;
    const next = endpoints.length > limit ? shown.at(-1)!.endpoint.id : hidden;
    return {
      endpoints: shown.map(({ endpoint, source }) => endpointView(endpoint, source)),
      ...(next !== undefined && { next }),
    };
  }
}

/**
 * Reads whose endpoints a call may see.
 *
 * @throws {@link WebhookDeliveryError} `invalid_option`: a tenant that is not known must not open all of them
 */
export function readScope(scope: EndpointScope | undefined): EndpointScope | undefined {
  if (scope === undefined) return undefined;
  const { tenant } = (scope ?? {}) as { tenant?: unknown };
  if (tenant === null || isIdentifier(tenant)) return { tenant };
  throw new WebhookDeliveryError(
    'invalid_option',
    'The scope has no tenant: give { tenant } with its name, or with null for the endpoints of none; for those of all, leave the scope out.',
  );
}

function checked(request: EndpointListRequest): EndpointListRequest & { readonly limit: number } {
  const { after, limit = DEFAULT_LIMIT } = request;
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_LIMIT) {
    throw new WebhookDeliveryError(
      'invalid_option',
      `limit must be a whole number from 1 to ${MAX_LIMIT}.`,
    );
  }
  if (after !== undefined && typeof after !== 'string') {
    throw new WebhookDeliveryError('invalid_option', 'after must be what a page gave as next.');
  }
  // Not its own only: a tenant that is a getter of a class must not be everybody.
  const scope = readScope('tenant' in request ? (request as EndpointScope) : undefined);
  return { ...scope, after, limit };
}
