import { randomBytes } from 'node:crypto';
import { Pool } from 'pg';
import { urlOf } from '../fixtures/services.js';

/** A pool of the tests' own server, and schemas that are dropped with it. */
export class TestDatabase {
  readonly pool = new Pool({ connectionString: urlOf('PostgreSQL'), max: 12 });
  private readonly schemas: string[] = [];

  /** A unique name for a schema, which is dropped at the end. */
  newSchema(): string {
    const schema = `test_${randomBytes(6).toString('hex')}`;
    this.schemas.push(schema);
    return schema;
  }

  async close(): Promise<void> {
    for (const schema of this.schemas) {
      await this.pool.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`);
    }
    await this.pool.end();
  }
}

/** Options of a store for a test that does not measure its default timeout, which a busy machine can exceed. */
export function storeIn(schema: string): { readonly schema: string; readonly timeout: string } {
  return { schema, timeout: '30s' };
}

/** Settles when a statement like this one waits for a lock. */
export async function untilLocked(pool: Pool, statement: string): Promise<void> {
  const waits = `SELECT 1 FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND query LIKE $1 AND pid <> pg_backend_pid()`;
  while ((await pool.query(waits, [statement])).rowCount === 0);
}

/** Resolves once a condition is true. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 10));
}
