import { Pool } from 'pg';
import { HostedClient } from './hosted-database.mjs';

/**
 * The application's own database. `runs` has a row for each handler run that reached its effect; `effects` has one row for
 * each event, like the table of an application with idempotent handlers.
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

  /** Records a run and commits the event in one transaction. */
  async addWith(event, commit) {
    const client = await this.client.connect();
    try {
      await client.query('BEGIN');
      await client.query(`INSERT INTO ${this.schema}.runs VALUES ($1)`, [event]);
      await commit(client);
      await client.query('COMMIT');
    } catch (error) {
      await client.query('ROLLBACK').catch(() => {});
      throw error;
    } finally {
      client.release();
    }
  }

  /** Records a run, with an idempotent effect. */
  async add(event) {
    await this.client.query(`INSERT INTO ${this.schema}.runs VALUES ($1)`, [event]);
    await this.client.query(
      `INSERT INTO ${this.schema}.effects VALUES ($1) ON CONFLICT DO NOTHING`,
      [event],
    );
  }

  /** @returns number of runs by event */
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
