import { unprintedHeaders } from '../options/unprinted.js';
import { invalidOption, readStrictly } from '../options/strict-options.js';
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
    ...(tenant !== undefined && { tenant }),
    url,
    events: [...events],
    ...(description !== undefined && { description }),
    ...(metadata !== undefined && { metadata: { ...metadata } }),
    settings: {
      ...settings,
      ...(settings.headers !== undefined && { headers: unprintedHeaders(settings.headers) }),
    },
    keys: keys.map(({ kid, notBefore }) => ({ kid, signsFrom: new Date(notBefore) })),
    ...(disabled !== undefined && {
      disabled: { at: new Date(disabled.at), reason: disabled.reason },
    }),
    ...(pausedAt !== undefined && { pausedAt: new Date(pausedAt) }),
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
    const { tenant, after, limit } = readListRequest(request);
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
      ...(next !== undefined && { next }),
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
  const { tenant } = readStrictly(scope, 'scope', { tenant: tenantFault });
  if (tenant !== undefined) return { tenant: tenant as string | null };
  throw invalidOption(
    'scope: has no tenant; pass { tenant } with its name or null, or leave the scope out for the endpoints of all tenants',
  );
}

function readListRequest(request: unknown): EndpointListRequest & { readonly limit: number } {
  const members = readStrictly(request, 'request', {
    tenant: tenantFault,
    after: 'optional',
    limit: 'optional',
  }) as EndpointListRequest;
  const { after, limit = DEFAULT_LIMIT } = members;
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_LIMIT) {
    throw invalidOption(`request.limit: must be a whole number from 1 to ${MAX_LIMIT}`);
  }
  if (after !== undefined && typeof after !== 'string') {
    throw invalidOption('request.after: must be `next` of the previous page');
  }
  return { ...members, limit };
}

function tenantFault(value: unknown): string | undefined {
  if (value === null || isIdentifier(value)) return undefined;
  return `${identifierRule('it')}, or null for the endpoints without a tenant`;
}
