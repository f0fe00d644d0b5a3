import { inspect } from 'node:util';
import { matchesEvent } from '../token/event-name.js';
import {
  type EndpointPageRequest,
  EndpointStore,
  type StoredEndpoint,
  keysOfEvent,
  subscriptionKeys,
} from './endpoint-store.js';

export function subscribesTo({ events }: StoredEndpoint, event: string): boolean {
  return events.some((pattern) => matchesEvent(pattern, event));
}

/** A deep-frozen copy of a JSON value, which can be returned without copying it again. */
export function frozenCopy<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value;
  const copy: object = Array.isArray(value)
    ? value.map(frozenCopy)
    : // Object.fromEntries keeps a member named __proto__ as an own member.
      Object.fromEntries(Object.entries(value).map(([name, member]) => [name, frozenCopy(member)]));
  // Headers stay unprinted: their values may be credentials.
  const print = Object.getOwnPropertyDescriptor(value, inspect.custom);
  if (print !== undefined) Object.defineProperty(copy, inspect.custom, print);
  return Object.freeze(copy) as T;
}

interface Entry {
  readonly endpoint: StoredEndpoint;
  readonly place: number;
}

/** Endpoints in memory, with an index of their subscriptions: finding those of an event does not read all of them. */
export class EndpointTable {
  private readonly byId = new Map<string, Entry>();
  private readonly bySubscription = new Map<string, Set<Entry>>();
  private puts = 0;

  get(id: string): StoredEndpoint | undefined {
    return this.byId.get(id)?.endpoint;
  }

  all(): StoredEndpoint[] {
    return Array.from(this.byId.values(), ({ endpoint }) => endpoint);
  }

  /** Adds a copy of an endpoint, or replaces the one that has its id. */
  put(endpoint: StoredEndpoint): void {
    this.delete(endpoint.id);
    const entry = { endpoint: frozenCopy(endpoint), place: this.puts++ };
    this.byId.set(endpoint.id, entry);
    for (const key of subscriptionKeys(endpoint)) {
      const entries = this.bySubscription.get(key);
      if (entries === undefined) this.bySubscription.set(key, new Set([entry]));
      else entries.add(entry);
    }
  }

  /** @returns whether the endpoint existed */
  delete(id: string): boolean {
    const entry = this.byId.get(id);
    if (entry === undefined) return false;
    for (const key of subscriptionKeys(entry.endpoint)) {
      const entries = this.bySubscription.get(key);
      entries?.delete(entry);
      // Empty sets of former tenants would add up.
      if (entries?.size === 0) this.bySubscription.delete(key);
    }
    return this.byId.delete(id);
  }

  /** Finds the endpoints of a tenant that subscribe to an event, disabled ones included, in the order of `put`. */
  subscribed(event: string, tenant: string | undefined): StoredEndpoint[] {
    const keys = keysOfEvent(event, tenant);
    const entries = new Set(keys.flatMap((key) => [...(this.bySubscription.get(key) ?? [])]));
    return [...entries]
      .filter(({ endpoint }) => subscribesTo(endpoint, event))
      .sort((a, b) => a.place - b.place)
      .map(({ endpoint }) => endpoint);
  }

  /** A page of endpoints by id, in the order of UTF-16 code units. */
  page({ tenant, after, limit }: EndpointPageRequest): StoredEndpoint[] {
    return this.all()
      .filter(
        (endpoint) =>
          (after === undefined || endpoint.id > after) &&
          (tenant === undefined || endpoint.tenant === (tenant ?? undefined)),
      )
      .sort((a, b) => (a.id < b.id ? -1 : 1))
      .slice(0, limit);
  }
}

/**
 * Stores endpoints in this process's memory: **they are lost when it ends**, and no other process sees them. For development
 * and tests; the default of the option `endpointStore`.
 */
export class MemoryEndpointStore extends EndpointStore {
  override readonly durable = false;
  override readonly transactional = false;

  private readonly endpoints = new EndpointTable();

  override async insert(endpoint: StoredEndpoint): Promise<boolean> {
    if (this.endpoints.get(endpoint.id) !== undefined) return false;
    this.endpoints.put(endpoint);
    return true;
  }

  override async find(id: string): Promise<StoredEndpoint | undefined> {
    return this.endpoints.get(id);
  }

  override async subscribed(
    event: string,
    tenant: string | undefined,
  ): Promise<readonly StoredEndpoint[]> {
    const found = this.endpoints.subscribed(event, tenant);
    return found.filter(({ disabled }) => disabled === undefined);
  }

  override async count(tenant: string): Promise<number> {
    return this.endpoints.all().filter((endpoint) => endpoint.tenant === tenant).length;
  }

  override async list(request: EndpointPageRequest): Promise<readonly StoredEndpoint[]> {
    return this.endpoints.page(request);
  }

  override async replace(endpoint: StoredEndpoint): Promise<boolean> {
    const stored = this.endpoints.get(endpoint.id);
    if (stored?.version !== endpoint.version - 1) return false;
    if (stored.createdAt !== endpoint.createdAt) return false;
    this.endpoints.put(endpoint);
    return true;
  }

  override async remove(id: string): Promise<boolean> {
    return this.endpoints.delete(id);
  }
}
