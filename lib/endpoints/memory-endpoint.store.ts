import { EndpointStore, type EndpointPageRequest, type StoredEndpoint } from './endpoint-store.js';
import { pageOf } from './endpoint-page.js';
import { frozenCopy } from './frozen-copy.js';

type ById = Map<string, StoredEndpoint>;

/**
 * Keeps endpoints in this process's memory: **they are gone when it ends**, and no other process sees them. Good for
 * development and tests; the publisher makes one where the option `endpointStore` is left out.
 */
export class MemoryEndpointStore extends EndpointStore {
  override readonly durable = false;
  override readonly writable = true;

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
