import { EndpointState } from '../sending/endpoint.js';
import type { ResolvedEndpoint, ResolvedEndpointOptions } from './endpoint-options.js';
import type {
  EndpointPageRequest,
  StoredEndpoint,
  StoredEndpointSettings,
} from './endpoint-store.js';
import { frozenCopy, pageOf } from './memory-endpoint.store.js';
import type { RegisteredEndpoint } from './stored-endpoint.cache.js';
import { SubscriptionIndex } from './subscription-index.js';

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

interface Configured {
  readonly id: string;
  readonly tenant: string | undefined;
  readonly events: readonly string[];
  readonly endpoint: RegisteredEndpoint;
  readonly row: StoredEndpoint;
}

/**
 * The endpoints of the publisher's options. Only the configuration changes them; `disabled` and `pausedAt` are the state of
 * this process.
 */
export class ConfiguredEndpoints {
  private readonly byId: ReadonlyMap<string, Configured>;
  private readonly sorted: readonly StoredEndpoint[];
  private readonly subscriptions = new SubscriptionIndex<Configured>();

  constructor({ endpoints, defaults, clock }: ResolvedEndpointOptions) {
    const now = clock.now();
    const all = endpoints.map((endpoint): Configured => {
      const { id, tenant, events } = endpoint;
      const own = SETTINGS.filter((name) => endpoint[name] !== defaults[name]);
      const settings = Object.fromEntries(own.map((name) => [name, endpoint[name]]));
      return {
        id,
        tenant,
        events,
        endpoint: registered(endpoint, now),
        row: rowOf(endpoint, settings, now),
      };
    });
    this.byId = new Map(all.map((one) => [one.id, one]));
    this.sorted = all.map(({ row }) => row).sort((a, b) => (a.id < b.id ? -1 : 1));
    for (const one of all) this.subscriptions.add(one);
  }

  has(id: string): boolean {
    return this.byId.has(id);
  }

  get(id: string): RegisteredEndpoint | undefined {
    return this.byId.get(id)?.endpoint;
  }

  all(): readonly RegisteredEndpoint[] {
    return [...this.byId.values()].map(({ endpoint }) => endpoint);
  }

  subscribed(event: string, tenant: string | undefined): RegisteredEndpoint[] {
    return this.subscriptions.find(event, tenant).map(({ endpoint }) => endpoint);
  }

  /** An endpoint in the form of a stored one, without its keys. */
  find(id: string): StoredEndpoint | undefined {
    const row = this.byId.get(id)?.row;
    return row && this.asOfNow(row);
  }

  /** A page of endpoints in the form of stored ones. */
  list(request: EndpointPageRequest): StoredEndpoint[] {
    return pageOf(this.sorted, request).map((row) => this.asOfNow(row));
  }

  private asOfNow(row: StoredEndpoint): StoredEndpoint {
    const { disabled, pausedAt } = this.get(row.id)!.state;
    return { ...row, disabled, pausedAt };
  }
}

function rowOf(
  { id, tenant, url, events }: ResolvedEndpoint,
  settings: StoredEndpointSettings,
  now: number,
): StoredEndpoint {
  return frozenCopy({
    id,
    tenant,
    url,
    events,
    settings,
    keys: [],
    version: 1,
    createdAt: now,
    updatedAt: now,
  });
}

function registered(
  { id, disabled, events: _events, ...endpoint }: ResolvedEndpoint,
  now: number,
): RegisteredEndpoint {
  return {
    ...endpoint,
    endpointId: id,
    label: `endpoint "${id}"`,
    state: new EndpointState(disabled ? { at: now, reason: 'requested' } : undefined),
  };
}
