import { unprintedHeaders } from '../options/unprinted.js';
import { readArgument } from '../options/read-options.js';
import { notUndefined, object, optional, rule, text, whole } from '../options/rules.js';
import { identifierRule, isIdentifier } from '../token/identifier.js';
import { type EndpointStore, type StoredEndpoint, unknownEndpoint } from './endpoint-store.js';
import { type EndpointScope, isInScope } from './endpoint.editor.js';
import type { OptionsEndpointStore } from './options-endpoint.store.js';
import type {
  EndpointListRequest,
  EndpointPage,
  WebhookEndpointView,
} from './webhook-endpoint.interface.js';

/** A copy of an endpoint without its sealed keys. */
export function endpointView(
  endpoint: StoredEndpoint,
  source: WebhookEndpointView['source'],
): WebhookEndpointView {
  const { id, tenant, url, events, description, metadata, settings, keys, disabled, pausedAt } =
    endpoint;
  return {
    id,
    tenant,
    url,
    events: [...events],
    description,
    metadata: metadata && { ...metadata },
    settings: {
      ...settings,
      ...(settings.headers !== undefined && { headers: unprintedHeaders(settings.headers) }),
    },
    keys: keys.map(({ kid, notBefore }) => ({ kid, signsFrom: new Date(notBefore) })),
    disabled: disabled && { at: new Date(disabled.at), reason: disabled.reason },
    pausedAt: pausedAt === undefined ? undefined : new Date(pausedAt),
    source,
    createdAt: source === 'store' ? new Date(endpoint.createdAt) : undefined,
    updatedAt: source === 'store' ? new Date(endpoint.updatedAt) : undefined,
    version: endpoint.version,
  };
}

/** A tenant's name, or `null` for the endpoints without a tenant. */
export const TENANT = notUndefined(
  rule<string | null>(
    (value) => value === null || isIdentifier(value),
    `${identifierRule('it')}, or null for the endpoints without a tenant`,
  ),
  'leave it out to see everything',
);

const REQUEST = object<EndpointListRequest>()(
  {
    tenant: TENANT,
    after: optional(text('must be `next` of the previous page')),
    limit: optional(whole(1, 1_000), 100),
  },
  { exact: true },
);

const SCOPE = object<EndpointScope>()(
  { tenant: TENANT },
  {
    exact: true,
    across({ tenant }, at) {
      at.require(
        tenant !== undefined || at.has(''),
        '',
        'has no tenant; pass { tenant } with its name or null, or leave the scope out for the endpoints of all tenants',
      );
    },
  },
);

interface Found {
  readonly endpoint: StoredEndpoint;
  readonly source: WebhookEndpointView['source'];
}

/** Reads configured and stored endpoints as one list. If both have an id, the configured endpoint wins. */
export class EndpointDirectory {
  constructor(
    private readonly configured: OptionsEndpointStore,
    private readonly store: EndpointStore,
  ) {}

  /** @throws {@link WebhookDeliveryError} `unknown_endpoint`, also for an endpoint outside the scope */
  async find(id: string, scope: EndpointScope | undefined): Promise<Found> {
    const configured = await this.configured.find(id);
    const endpoint = configured ?? (await this.store.find(id));
    if (endpoint === undefined || !isInScope(endpoint, scope)) throw unknownEndpoint();
    return { endpoint, source: configured === undefined ? 'store' : 'options' };
  }

  /** @throws {@link WebhookDeliveryError} `invalid_option` */
  async list(request: EndpointListRequest): Promise<EndpointPage> {
    const { tenant, after, limit } = readArgument(REQUEST, request, 'request');
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
    // A full page of the store may be hidden by configured endpoints, and is not the last one.
    const hidden = stored.length > limit ? stored.at(-1)!.id : undefined;
    const next = endpoints.length > limit ? shown.at(-1)!.endpoint.id : hidden;
    return {
      endpoints: shown.map(({ endpoint, source }) => endpointView(endpoint, source)),
      next,
    };
  }
}

/**
 * Reads the tenant that a call is limited to.
 *
 * @throws {@link WebhookDeliveryError} `invalid_option`
 */
export function readScope(scope: unknown): EndpointScope | undefined {
  if (scope === undefined) return undefined;
  const { tenant } = readArgument(SCOPE, scope, 'scope');
  return tenant === undefined ? undefined : { tenant };
}
