import {
  endpointIsConfigured,
  type EndpointPageRequest,
  EndpointStore,
  type StoredEndpoint,
  type StoredEndpointSettings,
} from './endpoint-store.js';
import { frozenCopy, pageOf } from './memory-endpoint.store.js';
import type { ResolvedEndpointSettings } from '../sending/endpoint.js';
import type { ResolvedEndpoint } from './endpoint-options.js';

const SETTINGS = [
  'method',
  'profile',
  'hash',
  'jti',
  'timeout',
  'headers',
  'audience',
  'subject',
] as const satisfies (keyof StoredEndpointSettings)[];

/**
 * A configured endpoint in the form of a stored one, without its keys.
 *
 * @param since - when it was configured, in epoch milliseconds
 */
export function storedOfConfigured(
  endpoint: ResolvedEndpoint,
  defaults: ResolvedEndpointSettings,
  since: number,
): StoredEndpoint {
  const { id, tenant, url, events } = endpoint;
  const own = SETTINGS.filter((name) => endpoint[name] !== defaults[name]);
  return {
    id,
    ...(tenant !== undefined && { tenant }),
    url,
    events,
    settings: Object.fromEntries(own.map((name) => [name, endpoint[name]])),
    keys: [],
    version: 1,
    createdAt: since,
    updatedAt: since,
  };
}

/** Returns whether this process has disabled or paused an endpoint. */
type StateOf = (id: string) => Pick<StoredEndpoint, 'disabled' | 'pausedAt'>;

/**
 * The configured endpoints as a read-only store. Only the configuration changes them; `disabled` and `pausedAt` are the
 * state of this process.
 */
export class OptionsEndpointStore extends EndpointStore {
  override readonly durable = true;
  override readonly writable = false;
  override readonly transactional = false;

  private readonly endpoints: ReadonlyMap<string, StoredEndpoint>;
  private readonly sorted: readonly StoredEndpoint[];

  constructor(
    endpoints: readonly StoredEndpoint[],
    private readonly stateOf: StateOf = () => ({}),
  ) {
    super();
    this.sorted = endpoints.map(frozenCopy).sort((a, b) => (a.id < b.id ? -1 : 1));
    this.endpoints = new Map(this.sorted.map((endpoint) => [endpoint.id, endpoint]));
  }

  has(id: string): boolean {
    return this.endpoints.has(id);
  }

  override async insert(): Promise<boolean> {
    throw endpointIsConfigured();
  }

  override async find(id: string): Promise<StoredEndpoint | undefined> {
    const endpoint = this.endpoints.get(id);
    return endpoint && this.asOfNow(endpoint);
  }

  override async subscribed(tenant: string | undefined): Promise<readonly StoredEndpoint[]> {
    return this.sorted
      .filter((endpoint) => endpoint.tenant === tenant)
      .map((endpoint) => this.asOfNow(endpoint))
      .filter(({ disabled }) => disabled === undefined);
  }

  override async list(request: EndpointPageRequest): Promise<readonly StoredEndpoint[]> {
    return pageOf(this.sorted, request).map((endpoint) => this.asOfNow(endpoint));
  }

  override async replace(): Promise<boolean> {
    throw endpointIsConfigured();
  }

  override async remove(): Promise<boolean> {
    throw endpointIsConfigured();
  }

  private asOfNow(endpoint: StoredEndpoint): StoredEndpoint {
    return { ...endpoint, ...this.stateOf(endpoint.id) };
  }
}
