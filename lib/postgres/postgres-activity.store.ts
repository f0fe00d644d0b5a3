import {
  type ActivityFilter,
  type ActivityPageRequest,
  ActivityStore,
  MAX_OF_TENANT,
  type StoredActivity,
} from '../endpoints/activity-store.js';
import type { Row } from './database.js';
import { millisecondsOf, timeOf } from './sql-text.js';
import type { StoreConnection } from './store-connection.js';

/** Entries that one statement deletes. */
const DELETED_AT_ONCE = 1_000;

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
    const values: unknown[] = [limit];
    const conditions = Object.entries(filter)
      .filter(([, value]) => value !== undefined)
      .map(([column, value]) => `${column} = $${values.push(value)}::text`);
    if (after !== undefined) {
      const at = timeOf(`$${values.push(after.at)}`);
      conditions.push(`(at, id) < (${at}, $${values.push(after.id)}::text COLLATE "C")`);
    }
    const where = conditions.length === 0 ? '' : `WHERE ${conditions.join(' AND ')}`;
    const rows = await this.connection.search(
      `SELECT id, ${millisecondsOf('at')} AS ms, origin, action, tenant, target, details, version FROM ${this.table} ${where}
ORDER BY at DESC, id DESC LIMIT $1::int`,
      values,
    );
    return rows.map(entryOf);
  }

  override async prune(before: number): Promise<number> {
    for (let pruned = 0; ;) {
      const gone = await this.connection.query(
        `DELETE FROM ${this.table} WHERE id = ANY (ARRAY(
  SELECT id FROM ${this.table} WHERE at < ${timeOf('$1')} ORDER BY at, id LIMIT ${DELETED_AT_ONCE})) RETURNING id`,
        [before],
      );
      pruned += gone.length;
      if (gone.length < DELETED_AT_ONCE) return pruned;
    }
  }

  /** A few more than one, so that it falls below the bound after several writes at the same time. */
  private async dropOldest({ tenant = '', action }: StoredActivity): Promise<void> {
    await this.connection.query(
      `DELETE FROM ${this.table} WHERE id = ANY (ARRAY(
  SELECT id FROM ${this.table} WHERE tenant = $1::text AND origin = 'partner' AND action = $2::text
  ORDER BY at DESC, id DESC OFFSET ${MAX_OF_TENANT - 1} LIMIT 10))`,
      [tenant, action].map(withoutNul),
    );
  }

  private async change(statement: string, entry: StoredActivity): Promise<boolean> {
    const { id, at, by, action, tenant = null, target = null, details, version } = entry;
    const json = JSON.stringify(details);
    const values = [id, at, by, action, tenant, target, json, version];
    const stored = values.map((one) => (typeof one === 'string' ? withoutNul(one) : one));
    return (await this.connection.query(statement, stored)).length > 0;
  }
}

/** No string in PostgreSQL contains NUL; JSON escapes it. */
function withoutNul(text: string): string {
  return text.replaceAll('\0', '\uFFFD');
}

function entryOf(row: Row): StoredActivity {
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
