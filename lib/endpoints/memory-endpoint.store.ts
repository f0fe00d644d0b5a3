import { inspect } from 'node:util';
import { type EndpointPageRequest, EndpointStore, type StoredEndpoint } from './endpoint-store.js';

/** A copy of a value of JSON that nobody can change, so that it may be handed out without another copy. */
export function frozenCopy<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value;
  const copy: object = Array.isArray(value)
    ? value.map(frozenCopy)
    : // Own members, also one named __proto__.
      Object.fromEntries(Object.entries(value).map(([name, member]) => [name, frozenCopy(member)]));
  // Headers stay unprinted: their values may be credentials.
  const print = Object.getOwnPropertyDescriptor(value, inspect.custom);
  if (print !== undefined) Object.defineProperty(copy, inspect.custom, print);
  return Object.freeze(copy) as T;
}

/** Cuts a page out of endpoints that are in the order of their ids, by code units. */
export function pageOf(
  sorted: readonly StoredEndpoint[],
  { tenant, after, limit }: EndpointPageRequest,
): StoredEndpoint[] {
  const page: StoredEndpoint[] = [];
  for (let at = after === undefined ? 0 : firstBehind(sorted, after); at < sorted.length; at++) {
    if (page.length >= limit) break;
    const endpoint = sorted[at]!;
    if (tenant === undefined || endpoint.tenant === (tenant ?? undefined)) page.push(endpoint);
  }
  return page;
}

function firstBehind(sorted: readonly StoredEndpoint[], id: string): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle]!.id > id) high = middle;
    else low = middle + 1;
  }
  return low;
}

type ById = Map<string, StoredEndpoint>;

/**
 * Keeps endpoints in this process's memory: **they are gone when it ends**, and no other process sees them. Good for
 * development and tests; the publisher makes one where the option `endpointStore` is left out.
 */
export class MemoryEndpointStore extends EndpointStore {
  override readonly durable = false;
  override readonly writable = true;
  override readonly transactional = false;

  private readonly endpoints: ById = new Map();
  /** An event is published for one tenant, and must not look at the endpoints of all. */
  private readonly byTenant = new Map<string | undefined, ById>();
  private sorted: readonly StoredEndpoint[] | undefined;

  /** Endpoints held. */
  get size(): number {
    return this.endpoints.size;
  }

  override async insert(endpoint: StoredEndpoint): Promise<boolean> {
    if (this.endpoints.has(endpoint.id)) return false;
    this.put(frozenCopy(endpoint));
    return true;
  }

  override async find(id: string): Promise<StoredEndpoint | undefined> {
    return this.endpoints.get(id);
  }

  override async subscribed(tenant: string | undefined): Promise<readonly StoredEndpoint[]> {
    const all = this.byTenant.get(tenant)?.values() ?? [];
    return [...all].filter(({ disabled }) => disabled === undefined);
  }

  override async list(request: EndpointPageRequest): Promise<readonly StoredEndpoint[]> {
    this.sorted ??= [...this.endpoints.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
    return pageOf(this.sorted, request);
  }

  override async replace(endpoint: StoredEndpoint): Promise<boolean> {
    const kept = this.endpoints.get(endpoint.id);
    if (kept === undefined || kept.version !== endpoint.version - 1) return false;
    this.take(kept);
    this.put(frozenCopy(endpoint));
    return true;
  }

  override async remove(id: string): Promise<boolean> {
    const kept = this.endpoints.get(id);
    if (kept !== undefined) this.take(kept);
    return kept !== undefined;
  }

  private put(endpoint: StoredEndpoint): void {
    const { id, tenant } = endpoint;
    this.sorted = undefined;
    this.endpoints.set(id, endpoint);
    const ofTenant: ById = this.byTenant.get(tenant) ?? new Map<string, StoredEndpoint>();
    this.byTenant.set(tenant, ofTenant.set(id, endpoint));
  }

  private take({ id, tenant }: StoredEndpoint): void {
    this.sorted = undefined;
    this.endpoints.delete(id);
    const ofTenant = this.byTenant.get(tenant);
    ofTenant?.delete(id);
    // Tenants come and go; what is left of them must not add up.
    if (ofTenant?.size === 0) this.byTenant.delete(tenant);
  }
}
