import { type EndpointPageRequest, EndpointStore, type StoredEndpoint } from './endpoint-store.js';
import { EndpointTable } from './endpoint-table.js';

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
