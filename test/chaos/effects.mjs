import { Pool } from 'pg';
import { HostedClient } from './hosted-database.mjs';

/**
 * The application's own database: what its handlers have done. Every run of a handler that has come to an effect is a row of
 * `runs`; `effects` has a row an event, as an application would write it that knows events by their ids.
 */
export class Effects {
  constructor({ url, schema }) {
    this.client = url.startsWith('http')
      ? new HostedClient(url)
      : new Pool({ connectionString: url, max: 10 });
    // An idle connection may break; without a listener that would end the process.
    this.client.on?.('error', () => {});
    this.schema = schema;
  }

  async create() {
    await this.client.query(`CREATE SCHEMA IF NOT EXISTS ${this.schema}`);
    await this.client.query(`CREATE TABLE ${this.schema}.runs (event text NOT NULL)`);
    await this.client.query(`CREATE TABLE ${this.schema}.effects (event text PRIMARY KEY)`);
  }

  /** A run in a transaction that also says to the replay store that the event is handled, or is rolled back. */
  async addWith(event, commit) {
    const client = await this.client.connect();
    try {
      await client.query('BEGIN');
      await client.query(`INSERT INTO ${this.schema}.runs VALUES ($1)`, [event]);
      if (!(await commit(client))) throw new Error('The lease was lost.');
      await client.query('COMMIT');
    } catch (error) {
      await client.query('ROLLBACK').catch(() => {});
      throw error;
    } finally {
      client.release();
    }
  }

  /** A run by itself, with an effect that a second run does not repeat. */
  async add(event) {
    await this.client.query(`INSERT INTO ${this.schema}.runs VALUES ($1)`, [event]);
    await this.client.query(
      `INSERT INTO ${this.schema}.effects VALUES ($1) ON CONFLICT DO NOTHING`,
      [event],
    );
  }

  /** @returns how often each event was run */
  async runs() {
    const { rows } = await this.client.query(
      `SELECT event, count(*)::int AS times FROM ${this.schema}.runs GROUP BY event`,
    );
    return new Map(rows.map(({ event, times }) => [event, times]));
  }

  async close({ drop = false } = {}) {
    if (drop) await this.client.query(`DROP SCHEMA ${this.schema} CASCADE`);
    await this.client.end();
  }
}
