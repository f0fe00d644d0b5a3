import {
  type EndpointPageRequest,
  EndpointStore,
  keysOfEvent,
  type StoredEndpoint,
  subscriptionKeys,
} from '../endpoints/endpoint-store.js';
import * as option from '../options/rules.js';
import { unprintedHeaders } from '../options/unprinted.js';
import { millisecondsOf, timeOf } from './sql-text.js';
import type { PostgresClientSource, Row } from './database.js';
import { PostgresActivityStore } from './postgres-activity.store.js';
import {
  type PostgresStoreOptions,
  STORE,
  StoreConnection,
  type StoreDescription,
} from './store-connection.js';

const DESCRIPTION: StoreDescription = {
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

const OPTIONS = option.object<PostgresEndpointStoreOptions>()({
  ...STORE,
  transactional: option.optional(option.flag, true),
});

/**
 * Stores endpoints in PostgreSQL, for any number of processes: on a server, or in the embedded database of a queue.
 *
 * Every change is one conditional statement, so of two concurrent changes one succeeds. Secrets arrive here sealed.
 *
 * ```ts
 * const store = new PostgresEndpointStore(new Pool({ connectionString }));
 * await store.migrate(); // or npx nestjs-webhook-token migrate, as a user with the privileges
 * ```
 */
export class PostgresEndpointStore extends EndpointStore {
  override readonly durable = true;
  override readonly transactional: boolean;
  override readonly activity: PostgresActivityStore;

  private readonly statements: EndpointStatements;
  private readonly connection: StoreConnection;

  /**
   * @param client - a pool, or a function that returns one; the application closes it
   * @param options - the default `timeout` is `'5s'`
   * @throws {@link WebhookConfigurationError} for an invalid client or option
   */
  constructor(client: PostgresClientSource, options?: PostgresEndpointStoreOptions) {
    super();
    const read = StoreConnection.read(DESCRIPTION, client, OPTIONS, options);
    this.transactional = read.options.transactional;
    this.connection = read.connection;
    this.activity = new PostgresActivityStore(this.connection);
    this.statements = new EndpointStatements(this.connection.schema);
  }

  /**
   * Brings the schema up to date, for this and the other stores. Several processes may call it at the same time.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`; `schema_ahead` if a newer version of the package has migrated it
   */
  async migrate(): Promise<void> {
    await this.connection.migrate();
  }

  /** Removes an endpoint that does not exist, which a read-only server refuses: a pool may stay connected to a former primary. */
  override async check(): Promise<void> {
    await this.remove('start-up check');
  }

  override async insert(endpoint: StoredEndpoint): Promise<boolean> {
    return this.change(this.statements.insert, endpoint);
  }

  override async find(id: string): Promise<StoredEndpoint | undefined> {
    const [found] = await this.read(this.statements.find, [id]);
    return found;
  }

  /**
   * The enabled endpoints of a tenant, or of none, whose patterns begin as the event does. An index finds them, so the time does
   * not grow with the number of endpoints.
   *
   * @param options - `tx` as for a queue: of node-postgres, TypeORM, Prisma, Drizzle, Kysely or Knex, or of PGlite if the store
   * is on one; on the same database
   * @throws {@link WebhookDeliveryError} `unsupported_option` if `tx` is not a transaction
   */
  override async subscribed(
    event: string,
    tenant: string | undefined,
    { tx }: { readonly tx?: unknown } = {},
  ): Promise<readonly StoredEndpoint[]> {
    // No string in PostgreSQL contains NUL, and JSON would hide it from the search.
    if (tenant?.includes('\0')) return [];
    return this.read(this.statements.subscribed, [JSON.stringify(keysOfEvent(event, tenant))], tx);
  }

  override async count(tenant: string): Promise<number> {
    const [row] = await this.connection.search(this.statements.count, [tenant]);
    return Number(row?.['count'] ?? 0);
  }

  override async list(request: EndpointPageRequest): Promise<readonly StoredEndpoint[]> {
    const { tenant, after, limit } = request;
    const values: unknown[] = [limit];
    if (after !== undefined) values.push(codeUnitsOf(after));
    if (typeof tenant === 'string') values.push(tenant);
    const statement = this.statements.list({
      tenant: tenantsAskedFor(tenant),
      hasCursor: after !== undefined,
    });
    return this.read(statement, values);
  }

  override async replace(endpoint: StoredEndpoint): Promise<boolean> {
    return this.change(this.statements.replace, endpoint);
  }

  override async remove(id: string): Promise<boolean> {
    const removed = await this.connection.search(this.statements.remove, [id]);
    return removed.length > 0;
  }

  private async change(statement: string, endpoint: StoredEndpoint): Promise<boolean> {
    const changed = await this.connection.query(statement, endpointValues(endpoint));
    return changed.length > 0;
  }

  private async read(
    statement: string,
    values: readonly unknown[],
    tx?: unknown,
  ): Promise<StoredEndpoint[]> {
    const rows =
      tx === undefined
        ? await this.connection.search(statement, values)
        : await this.connection.queryIn(tx, async (run) => run(statement, values));
    return rows.map(endpointOf);
  }
}

function tenantsAskedFor(tenant: string | null | undefined): EndpointListing['tenant'] {
  if (tenant === undefined) return 'all';
  return tenant === null ? 'none' : 'one';
}

/** The values of an endpoint for `insert` and `replace`. */
function endpointValues(endpoint: StoredEndpoint): (string | number | null)[] {
  const { id, tenant, url, events, keys, disabled, version, createdAt, updatedAt, ...details } =
    endpoint;
  return [
    id,
    codeUnitsOf(id),
    tenant ?? null,
    url,
    JSON.stringify(events),
    JSON.stringify(details),
    JSON.stringify(keys),
    disabled?.at ?? null,
    disabled?.reason ?? null,
    version,
    createdAt,
    updatedAt,
    JSON.stringify(subscriptionKeys(endpoint)),
  ];
}

function endpointOf(row: Row): StoredEndpoint {
  const { id, tenant, url, events, details, keys, version } = row as Record<string, string>;
  const { disabled_at: at, created_at: createdAt, updated_at: updatedAt } = row;
  const reason = row['disabled_reason'] as NonNullable<StoredEndpoint['disabled']>['reason'];
  const { settings, ...texts } = JSON.parse(details!) as Pick<StoredEndpoint, 'settings'>;
  const { headers } = settings;
  return {
    ...texts,
    settings:
      headers === undefined ? settings : { ...settings, headers: unprintedHeaders(headers) },
    id: id!,
    ...(tenant !== null && { tenant: tenant! }),
    url: url!,
    events: JSON.parse(events!) as StoredEndpoint['events'],
    keys: JSON.parse(keys!) as StoredEndpoint['keys'],
    ...(at !== null && { disabled: { at: Number(at), reason } }),
    version: Number(version),
    createdAt: Number(createdAt),
    updatedAt: Number(updatedAt),
  };
}

/** The UTF-16 code units of a string as hex: their order as bytes is that of JavaScript. */
function codeUnitsOf(text: string): string {
  return Buffer.from(text, 'utf16le').swap16().toString('hex');
}

/** An array of strings, passed as JSON. */
function textsOf(parameter: string): string {
  return `ARRAY(SELECT json_array_elements_text(${parameter}::text::json))`;
}

interface EndpointListing {
  readonly tenant: 'all' | 'none' | 'one';
  readonly hasCursor: boolean;
}

/**
 * The statements of the endpoint store. Each checks and changes a row in one step, so that of two concurrent changes only one succeeds.
 */
class EndpointStatements {
  /** Values as in `endpointValues`; returns a row if the id was free. */
  readonly insert: string;

  /** Values as for `insert`; returns a row if the stored version was the previous one. */
  readonly replace: string;

  /** `$1` id; returns a row if there was one. */
  readonly remove: string;

  /** `$1` id. */
  readonly find: string;

  /** `$1` the keys of an event as JSON. */
  readonly subscribed: string;

  /** `$1` tenant. */
  readonly count: string;

  private readonly select: string;

  constructor(schema: string) {
    const table = `${schema}.endpoint`;
    this.insert = `INSERT INTO ${table}
  (id, code_units, tenant, url, events, details, keys, disabled_at, disabled_reason, version, created_at, updated_at,
  subscription_keys)
VALUES ($1::text, decode($2::text, 'hex'), $3::text, $4::text, $5::text::json, $6::text::json, $7::text::json,
  ${timeOf('$8')}, $9::text, $10::int, ${timeOf('$11')}, ${timeOf('$12')},
  ${textsOf('$13')})
ON CONFLICT (id) DO NOTHING RETURNING id`;
    this.replace = `UPDATE ${table} SET
  code_units = decode($2::text, 'hex'), tenant = $3::text, url = $4::text, events = $5::text::json,
  details = $6::text::json, keys = $7::text::json, disabled_at = ${timeOf('$8')}, disabled_reason = $9::text,
  version = $10::int, updated_at = ${timeOf('$12')},
  subscription_keys = ${textsOf('$13')}
WHERE id = $1::text AND version = $10::int - 1 AND created_at = ${timeOf('$11')} RETURNING id`;
    this.remove = `DELETE FROM ${table} WHERE id = $1::text RETURNING id`;
    // As text, because an application can change how its driver parses json.
    this.select = `SELECT id, tenant, url, events::text AS events, details::text AS details, keys::text AS keys,
  ${millisecondsOf('disabled_at')} AS disabled_at, disabled_reason, version,
  ${millisecondsOf('created_at')} AS created_at, ${millisecondsOf('updated_at')} AS updated_at
FROM ${table}`;
    this.find = `${this.select} WHERE id = $1::text`;
    this.subscribed = `${this.select} WHERE subscription_keys && ${textsOf('$1')} AND disabled_at IS NULL ORDER BY code_units`;
    this.count = `SELECT count(*) AS count FROM ${table} WHERE tenant = $1::text`;
  }

  /** `$1` limit, then the cursor as hex and the tenant, each if it is set. */
  list({ tenant, hasCursor }: EndpointListing): string {
    const conditions = [
      ...(hasCursor ? [`code_units > decode($2::text, 'hex')`] : []),
      ...(tenant === 'none' ? ['tenant IS NULL'] : []),
      ...(tenant === 'one' ? [`tenant = $${hasCursor ? 3 : 2}::text`] : []),
    ];
    const where = conditions.length > 0 ? ` WHERE ${conditions.join(' AND ')}` : '';
    return `${this.select}${where} ORDER BY code_units LIMIT $1::int`;
  }
}
