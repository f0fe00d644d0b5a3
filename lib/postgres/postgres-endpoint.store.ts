import {
  type ActivityFilter,
  type ActivityPageRequest,
  ActivityStore,
  MAX_OF_TENANT,
  type StoredActivity,
} from '../endpoints/activity-store.js';
import {
  type EndpointPageRequest,
  EndpointStore,
  keysOfEvent,
  type StoredEndpoint,
  subscriptionKeys,
} from '../endpoints/endpoint-store.js';
import * as option from '../options/rules.js';
import { unprintedHeaders } from '../options/unprinted.js';
import { deleteInBatches } from './connection.js';
import type { PostgresClientSource, Row } from './database.js';
import { storableText } from './delivery-row.js';
import { Conditions, millisecondsOf, timeOf } from './sql-text.js';
import { type PostgresStoreOptions, STORE, StoreConnection } from './store-connection.js';

/** All optional. */
export interface PostgresEndpointStoreOptions extends PostgresStoreOptions {
  /**
   * Whether `publish({ tx })` looks endpoints up in that transaction, which needs no second connection; default `true`. Set it
   * to `false` if the endpoints are in another database than the queue.
   */
  readonly transactional?: boolean | undefined;
}

const DESCRIPTION = {
  name: 'PostgresEndpointStore',
  subject: 'The endpoint store',
  timeout: 5_000,
  options: option.object<PostgresEndpointStoreOptions>()({
    ...STORE,
    transactional: option.optional(option.flag, true),
  }),
};

/** Activities that one statement deletes. */
const DELETED_AT_ONCE = 1_000;

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

  private readonly connection: StoreConnection;
  private readonly table: string;
  private readonly select: string;

  /**
   * @param client - a pool, or a function that returns one; the application closes it
   * @param options - the default `timeout` is `'5s'`
   * @throws {@link WebhookConfigurationError} for an invalid client or option
   */
  constructor(client: PostgresClientSource, options?: PostgresEndpointStoreOptions) {
    super();
    const connection = new StoreConnection(DESCRIPTION, client, options);
    this.transactional = connection.options.transactional;
    this.connection = connection;
    this.activity = new PostgresActivityStore(connection);
    this.table = `${connection.schema}.endpoint`;
    // As text, because an application can change how its driver parses json.
    this.select = `SELECT id, tenant, url, events::text AS events, details::text AS details, keys::text AS keys,
  ${millisecondsOf('disabled_at')} AS disabled_at, disabled_reason, version,
  ${millisecondsOf('created_at')} AS created_at, ${millisecondsOf('updated_at')} AS updated_at
FROM ${this.table}`;
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
    return this.change(
      `INSERT INTO ${this.table}
  (id, code_units, tenant, url, events, details, keys, disabled_at, disabled_reason, version, created_at, updated_at,
  subscription_keys)
VALUES ($1::text, decode($2::text, 'hex'), $3::text, $4::text, $5::text::json, $6::text::json, $7::text::json,
  ${timeOf('$8')}, $9::text, $10::int, ${timeOf('$11')}, ${timeOf('$12')},
  ${textsOf('$13')})
ON CONFLICT (id) DO NOTHING RETURNING id`,
      endpoint,
    );
  }

  override async find(id: string): Promise<StoredEndpoint | undefined> {
    const [row] = await this.connection.search(`${this.select} WHERE id = $1::text`, [id]);
    return row && endpointOf(row);
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
    const statement = `${this.select} WHERE subscription_keys && ${textsOf('$1')} AND disabled_at IS NULL ORDER BY code_units`;
    const values = [JSON.stringify(keysOfEvent(event, tenant))];
    const rows = await (tx === undefined
      ? this.connection.query(statement, values)
      : this.connection.joining(tx, async (run) => run(statement, values)));
    return rows.map(endpointOf);
  }

  override async count(tenant: string): Promise<number> {
    const [row] = await this.connection.search(
      `SELECT count(*) AS count FROM ${this.table} WHERE tenant = $1::text`,
      [tenant],
    );
    return Number(row?.['count'] ?? 0);
  }

  override async list({
    tenant,
    after,
    limit,
  }: EndpointPageRequest): Promise<readonly StoredEndpoint[]> {
    const where = new Conditions([limit]);
    const cursor = after === undefined ? undefined : codeUnitsOf(after);
    where.add(cursor, (hex) => `code_units > decode(${hex}::text, 'hex')`);
    if (tenant === null) where.always('tenant IS NULL');
    else where.add(tenant, (name) => `tenant = ${name}::text`);
    const rows = await this.connection.search(
      `${this.select}${where.clause} ORDER BY code_units LIMIT $1::int`,
      where.values,
    );
    return rows.map(endpointOf);
  }

  override async replace(endpoint: StoredEndpoint): Promise<boolean> {
    return this.change(
      `UPDATE ${this.table} SET
  code_units = decode($2::text, 'hex'), tenant = $3::text, url = $4::text, events = $5::text::json,
  details = $6::text::json, keys = $7::text::json, disabled_at = ${timeOf('$8')}, disabled_reason = $9::text,
  version = $10::int, updated_at = ${timeOf('$12')},
  subscription_keys = ${textsOf('$13')}
WHERE id = $1::text AND version = $10::int - 1 AND created_at = ${timeOf('$11')} RETURNING id`,
      endpoint,
    );
  }

  override async remove(id: string): Promise<boolean> {
    const statement = `DELETE FROM ${this.table} WHERE id = $1::text RETURNING id`;
    return (await this.connection.search(statement, [id])).length > 0;
  }

  /** @param statement - gets {@link endpointValues}, and returns the changed row */
  private async change(statement: string, endpoint: StoredEndpoint): Promise<boolean> {
    return (await this.connection.query(statement, endpointValues(endpoint))).length > 0;
  }
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

/** Stores activity in PostgreSQL, with the endpoints: `PostgresEndpointStore.activity`. */
export class PostgresActivityStore extends ActivityStore {
  private readonly table: string;

  constructor(private readonly connection: StoreConnection) {
    super();
    this.table = `${connection.schema}.activity`;
  }

  override async record(entry: StoredActivity): Promise<boolean> {
    if (entry.by === 'partner') await this.dropOldest(entry);
    return this.change(
      `INSERT INTO ${this.table} (id, at, origin, action, tenant, target, details, version)
VALUES ($1::text, ${timeOf('$2')}, $3::text, $4::text, $5::text, $6::text, $7::text, $8::int)
ON CONFLICT (id) DO NOTHING RETURNING id`,
      entry,
    );
  }

  override async replace(entry: StoredActivity): Promise<boolean> {
    return this.change(
      `UPDATE ${this.table} SET at = ${timeOf('$2')}, origin = $3::text, action = $4::text, tenant = $5::text,
  target = $6::text, details = $7::text, version = $8::int
WHERE id = $1::text AND version = $8::int - 1 RETURNING id`,
      entry,
    );
  }

  override async list(
    filter: ActivityFilter,
    { after, limit }: ActivityPageRequest,
  ): Promise<readonly StoredActivity[]> {
    const where = new Conditions([limit]);
    for (const [column, value] of Object.entries(filter)) {
      where.add(value, (text) => `${column} = ${text}::text`);
    }
    where.after(after && [after.at, after.id], '(at, id)');
    const rows = await this.connection.search(
      `SELECT id, ${millisecondsOf('at')} AS ms, origin, action, tenant, target, details, version FROM ${this.table}${where.clause}
ORDER BY at DESC, id DESC LIMIT $1::int`,
      where.values,
    );
    return rows.map(activityOf);
  }

  override async prune(before: number): Promise<number> {
    const statement = `WITH gone AS (DELETE FROM ${this.table} WHERE id = ANY (ARRAY(
  SELECT id FROM ${this.table} WHERE at < ${timeOf('$1')} ORDER BY at, id LIMIT ${DELETED_AT_ONCE})) RETURNING id)
SELECT count(*)::int AS gone FROM gone`;
    return deleteInBatches(DELETED_AT_ONCE, async () => this.connection.query(statement, [before]));
  }

  /** A few more than one, so that it falls below the bound after several writes at the same time. */
  private async dropOldest({ tenant = '', action }: StoredActivity): Promise<void> {
    await this.connection.query(
      `DELETE FROM ${this.table} WHERE id = ANY (ARRAY(
  SELECT id FROM ${this.table} WHERE tenant = $1::text AND origin = 'partner' AND action = $2::text
  ORDER BY at DESC, id DESC OFFSET ${MAX_OF_TENANT - 1} LIMIT 10))`,
      [tenant, action].map(storableText),
    );
  }

  private async change(statement: string, entry: StoredActivity): Promise<boolean> {
    const { id, at, by, action, tenant = null, target = null, details, version } = entry;
    const json = JSON.stringify(details);
    const values = [id, at, by, action, tenant, target, json, version];
    const stored = values.map((one) => (typeof one === 'string' ? storableText(one) : one));
    return (await this.connection.query(statement, stored)).length > 0;
  }
}

function activityOf(row: Row): StoredActivity {
  const { id, origin, action, tenant, target, details } = row as Record<string, string>;
  return {
    id: id!,
    at: Number(row['ms']),
    by: origin as StoredActivity['by'],
    action: action!,
    ...(tenant !== null && { tenant: tenant! }),
    ...(target !== null && { target: target! }),
    details: JSON.parse(details!) as StoredActivity['details'],
    version: Number(row['version']),
  };
}
