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

/** All optional. */
export interface PostgresEndpointStoreOptions extends PostgresStoreOptions {
  /**
   * Whether `publish({ tx })` looks endpoints up in that transaction, which needs no second connection; default `true`. Set it
   * to `false` if the endpoints are in another database than the queue.
   */
  readonly transactional?: boolean | undefined;
}

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
  override readonly transactional: boolean;

  private readonly statements: EndpointStatements;
  private readonly connection: StoreConnection;

  /**
   * @param client - a pool, or what gives one; closing it stays the application's
   * @param options - `timeout` is `'5s'` where it is left out
   * @throws {@link WebhookConfigurationError} for a client that is none, and for options out of range
   */
  constructor(client: PostgresClientSource, options: PostgresEndpointStoreOptions = {}) {
    super();
    this.transactional = options.transactional ?? true;
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

  /**
   * The enabled endpoints of a tenant, or of none.
   *
   * @param options - `tx` as for a queue: of node-postgres, TypeORM, Prisma, Drizzle, Kysely or Knex, or of PGlite where the store
   * is on one; on the same database
   * @throws {@link WebhookDeliveryError} `unsupported_option` for what is no transaction
   */
  override async subscribed(
    tenant: string | undefined,
    { tx }: { readonly tx?: unknown } = {},
  ): Promise<readonly StoredEndpoint[]> {
    const statement = this.statements.subscribed(tenant !== undefined);
    return this.read(statement, tenant === undefined ? [] : [tenant], tx);
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

  private async read(
    statement: string,
    values: readonly unknown[],
    tx?: unknown,
  ): Promise<StoredEndpoint[]> {
    const rows =
      tx === undefined
        ? await this.connection.match(statement, values)
        : await this.connection.askIn(tx, statement, values);
    return rows.map(endpointOf);
  }
}

function tenantsAskedFor(tenant: string | null | undefined): EndpointListing['tenant'] {
  if (tenant === undefined) return 'all';
  return tenant === null ? 'none' : 'one';
}
