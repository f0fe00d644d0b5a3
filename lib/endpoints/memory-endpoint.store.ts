import { inspect } from 'node:util';
import { type EndpointPageRequest, EndpointStore, type StoredEndpoint } from './endpoint-store.js';
import { SubscriptionIndex } from './subscription-index.js';

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

/** @param sorted - by id, in the order of UTF-16 code units */
export function pageOf(
  sorted: readonly StoredEndpoint[],
  { tenant, after, limit }: EndpointPageRequest,
): StoredEndpoint[] {
  const page: StoredEndpoint[] = [];
  for (let at = after === undefined ? 0 : firstAfter(sorted, after); at < sorted.length; at++) {
    if (page.length >= limit) break;
    const endpoint = sorted[at]!;
    if (tenant === undefined || endpoint.tenant === (tenant ?? undefined)) page.push(endpoint);
  }
  return page;
}

function firstAfter(sorted: readonly StoredEndpoint[], id: string): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle]!.id > id) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * Stores endpoints in this process's memory: **they are lost when it ends**, and no other process sees them. For development
 * and tests; the default of the option `endpointStore`.
 */
export class MemoryEndpointStore extends EndpointStore {
  override readonly durable = false;
  override readonly transactional = false;

  private readonly endpoints = new Map<string, StoredEndpoint>();
  private readonly subscriptions = new SubscriptionIndex<StoredEndpoint>();
  private sorted: readonly StoredEndpoint[] | undefined;

  override async insert(endpoint: StoredEndpoint): Promise<boolean> {
    if (this.endpoints.has(endpoint.id)) return false;
    this.put(frozenCopy(endpoint));
    return true;
  }

  override async find(id: string): Promise<StoredEndpoint | undefined> {
    return this.endpoints.get(id);
  }

  override async subscribed(
    event: string,
    tenant: string | undefined,
  ): Promise<readonly StoredEndpoint[]> {
    const found = this.subscriptions.find(event, tenant);
    return found.filter(({ disabled }) => disabled === undefined);
  }

  override async count(tenant: string): Promise<number> {
    return [...this.endpoints.values()].filter((endpoint) => endpoint.tenant === tenant).length;
  }

  override async list(request: EndpointPageRequest): Promise<readonly StoredEndpoint[]> {
    this.sorted ??= [...this.endpoints.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
    return pageOf(this.sorted, request);
  }

  override async replace(endpoint: StoredEndpoint): Promise<boolean> {
    const stored = this.endpoints.get(endpoint.id);
    if (stored === undefined || stored.version !== endpoint.version - 1) return false;
    this.take(stored);
    this.put(frozenCopy(endpoint));
    return true;
  }

  override async remove(id: string): Promise<boolean> {
    const stored = this.endpoints.get(id);
    if (stored !== undefined) this.take(stored);
    return stored !== undefined;
  }

  private put(endpoint: StoredEndpoint): void {
    this.sorted = undefined;
    this.endpoints.set(endpoint.id, endpoint);
    this.subscriptions.add(endpoint);
  }

  private take(endpoint: StoredEndpoint): void {
    this.sorted = undefined;
    this.endpoints.delete(endpoint.id);
    this.subscriptions.remove(endpoint);
  }
}
