import {
  EndpointStore,
  type EndpointPageRequest,
  type StoredEndpoint,
} from '../endpoints/endpoint-store.js';
import {
  codeUnitsOf,
  endpointOf,
  endpointValues,
  EndpointStatements,
  type EndpointListing,
} from './endpoint-statements.js';
import {
  type PostgresClientSource,
  type PostgresStoreOptions,
  StoreConnection,
  type StoreIdentity,
} from './store-connection.js';

const IDENTITY: StoreIdentity = {
  name: 'PostgresEndpointStore',
  subject: 'The endpoint store',
  timeout: 5_000,
};

/**
 * Keeps endpoints in PostgreSQL, for any number of processes: on a server, or on the embedded database of a queue.
 *
 * Every change is one statement on a condition, so of two at once one succeeds. Secrets are sealed before they come here.
 *
 * ```ts
 * const store = new PostgresEndpointStore(new Pool({ connectionString }));
 * await store.migrate(); // or npx nestjs-webhook-token migrate, as a user that may
 * ```
 */
export class PostgresEndpointStore extends EndpointStore {
  override readonly durable = true;
  override readonly writable = true;

  private readonly statements: EndpointStatements;
  private readonly connection: StoreConnection;

  /**
   * @param client - a pool, or what gives one; closing it stays the application's
   * @param options - `timeout` is `'5s'` where it is left out
   * @throws {@link WebhookConfigurationError} for a client that is none, and for options out of range
   */
  constructor(client: PostgresClientSource, options: PostgresStoreOptions = {}) {
    super();
    this.connection = new StoreConnection(IDENTITY, client, options);
    this.statements = new EndpointStatements(this.connection.schema);
  }

  /**
   * Brings the schema up to date: this store's table and those of the others. Any number of processes may do so at once.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`; `schema_ahead` where a newer version of the package has made it
   */
  async migrate(): Promise<void> {
    await this.connection.migrate();
  }

  override async insert(endpoint: StoredEndpoint): Promise<boolean> {
    return this.change(this.statements.insert, endpoint);
  }

  /** What is kept of an endpoint. */
  override async find(id: string): Promise<StoredEndpoint | undefined> {
    const [found] = await this.read(this.statements.find, [id]);
    return found;
  }

  override async subscribed(tenant: string | undefined): Promise<readonly StoredEndpoint[]> {
    const statement = this.statements.subscribed(tenant !== undefined);
    return this.read(statement, tenant === undefined ? [] : [tenant]);
  }

  override async list(request: EndpointPageRequest): Promise<readonly StoredEndpoint[]> {
    const { tenant, after, limit } = request;
    const values: unknown[] = [limit];
    if (after !== undefined) values.push(codeUnitsOf(after));
    if (typeof tenant === 'string') values.push(tenant);
    const statement = this.statements.list({
      tenant: tenantsAskedFor(tenant),
      isBehind: after !== undefined,
    });
    return this.read(statement, values);
  }

  override async replace(endpoint: StoredEndpoint): Promise<boolean> {
    return this.change(this.statements.replace, endpoint);
  }

  override async remove(id: string): Promise<boolean> {
    const removed = await this.connection.match(this.statements.remove, [id]);
    return removed.length > 0;
  }

  private async change(statement: string, endpoint: StoredEndpoint): Promise<boolean> {
    const changed = await this.connection.ask(statement, endpointValues(endpoint));
    return changed.length > 0;
  }

  private async read(statement: string, values: readonly unknown[]): Promise<StoredEndpoint[]> {
    const rows = await this.connection.match(statement, values);
    return rows.map(endpointOf);
  }
}

function tenantsAskedFor(tenant: string | null | undefined): EndpointListing['tenant'] {
  if (tenant === undefined) return 'all';
  return tenant === null ? 'none' : 'one';
}
