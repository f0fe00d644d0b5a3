// Compares the model of the database with PostgreSQL: the same statements, with the same parameters, must have the same rows.
import { randomBytes } from 'node:crypto';
import { Pool } from 'pg';
import { PostgresQueue } from '../../build/lib/postgres/index.js';
import { SERVICE_URLS } from '../fixtures/service-urls.mjs';

/** The position of the time among the parameters of a statement. The model has the time of the server. */
const TIME = {
  releaseAll: 1,
  releaseNext: 2,
  claim: 1,
  claimLimited: 1,
  endLimited: 2,
  setLimits: 2,
  redeliver: 2,
  recordKeyed: 2,
  recordLocked: 2,
  record: 2,
  settle: 1,
  extend: 1,
  findDueLanes: 2,
  findLimitedLanes: 1,
};
/** Statements whose rows have an order. */
const IS_ORDERED = new Set(['claim', 'record', 'recordKeyed', 'recordLocked']);
/** The order of the others. */
const IDENTITY = ['given_id', 'id', 'lane', 'seq'];
/** PostgreSQL stores microseconds. */
const PRECISION = 0.01;
/** Milliseconds; a statement that waits for another one would wait for ever, since one runs at a time. */
const LOCK_TIMEOUT = 2_000;

/** More than the transactions that are open at once. */
const CONNECTIONS = 40;
/** Milliseconds. */
const START = 10_000;

/** The statements of a run in the order in which they had their effect. */
export class StatementLog {
  entries = [];

  /** @param table - which answered it */
  answered(table, operation, { text, values, transaction }, rows) {
    const given = [...values];
    if (operation in TIME) given[TIME[operation]] = table.now;
    const answer = structuredClone(rows);
    this.entries.push({ table: table.name, operation, text, values: given, transaction, answer });
  }

  began(transaction) {
    transaction.onEnd(() => this.entries.push({ transaction, end: transaction.state }));
  }
}

/** A schema of its own in PostgreSQL. */
export class SqlComparison {
  #schema = `simulator_${randomBytes(6).toString('hex')}`;
  #pool = new Pool({
    connectionString: SERVICE_URLS.PostgreSQL,
    options: `-c lock_timeout=${LOCK_TIMEOUT} -c synchronous_commit=off`,
    max: CONNECTIONS,
    connectionTimeoutMillis: START,
  });
  #seqs;
  #open;

  static async open() {
    const comparison = new SqlComparison();
    const queue = new PostgresQueue({ pool: comparison.#pool, schema: comparison.#schema });
    await queue.find([]);
    await queue.find(['none']);
    await queue.stop(Date.now());
    return comparison;
  }

  async close() {
    await this.#pool.query(`DROP SCHEMA ${this.#schema} CASCADE`);
    await this.#pool.end();
  }

  /** Runs the statements of a log. @returns the first difference, or `undefined` */
  async differenceIn({ entries }) {
    const schema = this.#schema;
    await this.#pool.query(
      `TRUNCATE ${schema}.delivery, ${schema}.attempt, ${schema}.delivery_key, ${schema}.delivery_limit`,
    );
    // By table and seq of the model: the seq in PostgreSQL, and the reverse.
    this.#seqs = { real: new Map(), model: new Map() };
    this.#open = new Map();
    try {
      for (const [place, entry] of entries.entries()) {
        const difference = await this.#difference(entry);
        if (difference !== undefined) return `statement ${place + 1}, ${difference}`;
      }
      return undefined;
    } finally {
      for (const client of this.#open.values()) client.release(true);
    }
  }

  async #difference({ table, operation, text, values, transaction, answer, end }) {
    if (end !== undefined) return this.#end(transaction, end);
    const client = transaction === undefined ? this.#pool : await this.#clientOf(transaction);
    const statement = text.replaceAll('webhooks.', `${this.#schema}.`);
    const translated = values.map((value) => this.#toReal(table, value));
    let rows;
    try {
      ({ rows } = await client.query(statement, translated));
    } catch (error) {
      return `${operation}: PostgreSQL fails: ${error.message}`;
    }
    if (operation.startsWith('record')) this.#learn(table, answer, rows);
    const expected = inOrder(
      operation,
      answer.map((row) => this.#modelRow(row)),
    );
    const actual = inOrder(
      operation,
      rows.map((row) => this.#realRow(table, row)),
    );
    if (expected.length !== actual.length) {
      return `${operation}: ${expected.length} rows in the model, ${actual.length} in PostgreSQL`;
    }
    for (const [index, row] of actual.entries()) {
      for (const [column, value] of Object.entries(row)) {
        const wanted = expected[index][column] ?? null;
        if (isSame(wanted, value)) continue;
        return `${operation}: ${column} of ${row.id ?? row.given_id ?? row.seq} is ${print(wanted)} in the model, ${print(value)} in PostgreSQL`;
      }
    }
    return undefined;
  }

  async #clientOf(transaction) {
    const known = this.#open.get(transaction);
    if (known !== undefined) return known;
    const client = await this.#pool.connect();
    this.#open.set(transaction, client);
    await client.query('BEGIN');
    return client;
  }

  async #end(transaction, state) {
    const client = this.#open.get(transaction);
    this.#open.delete(transaction);
    await client?.query(state === 'committed' ? 'COMMIT' : 'ROLLBACK');
    client?.release();
    return undefined;
  }

  /** Learns which rows are the same: PostgreSQL has one sequence for all queues, and first numbers of keys of its own. */
  #learn(table, answer, rows) {
    for (const { given_id, recorded_seq } of rows) {
      const model = answer.find((row) => row.given_id === given_id)?.recorded_seq;
      if (recorded_seq === null || model === undefined) continue;
      this.#seqs.real.set(`${table} ${model}`, recorded_seq);
      this.#seqs.model.set(`${table} ${recorded_seq}`, model);
    }
  }

  /** A parameter of the model with the rows of PostgreSQL. */
  #toReal(table, value) {
    if (typeof value !== 'string' || !value.startsWith('[')) return value;
    const realOf = (seq) => this.#seqs.real.get(`${table} ${seq}`) ?? seq;
    const list = JSON.parse(value).map((one) => {
      if (typeof one !== 'object' || one === null) return realOf(one);
      const { seq, slot } = one;
      const [slotSeq, claim] = slot?.split(':') ?? [];
      return {
        ...one,
        ...(seq !== undefined && { seq: realOf(seq) }),
        ...(slot !== undefined && { slot: `${realOf(slotSeq)}:${claim}` }),
      };
    });
    return JSON.stringify(list);
  }

  #modelRow(row) {
    return { ...row, key: undefined };
  }

  #realRow(table, { key: _key, ...row }) {
    for (const column of ['seq', 'recorded_seq']) {
      if (!isMissing(row[column])) {
        row[column] = this.#seqs.model.get(`${table} ${row[column]}`) ?? `unknown ${row[column]}`;
      }
    }
    return row;
  }
}

/** Numbers of a key count from an arbitrary one, so that only their differences are compared. */
function inOrder(operation, rows) {
  const first = new Map();
  const relative = rows.map((row) => {
    if (isMissing(row.sequence) || isMissing(row.ordering_key)) return row;
    const key = `${row.endpoint_id} ${row.ordering_key}`;
    first.set(key, Math.min(first.get(key) ?? Infinity, row.sequence));
    return { ...row, lane_key: key };
  });
  const all = relative.map(({ lane_key, ...row }) =>
    lane_key === undefined ? row : { ...row, sequence: row.sequence - first.get(lane_key) },
  );
  if (operation === 'claimLimited') return all.toSorted(byLane);
  if (IS_ORDERED.has(operation)) return all;
  return all.toSorted(byIdentity);
}

/** Those of a lane keep their order. */
function byLane(a, b) {
  return a.lane === b.lane ? 0 : a.lane < b.lane ? -1 : 1;
}

function byIdentity(a, b) {
  return identityOf(a) < identityOf(b) ? -1 : 1;
}

function identityOf(row) {
  if (typeof row === 'string') return row;
  return String(IDENTITY.map((column) => row[column]).find((value) => !isMissing(value)));
}

function isMissing(value) {
  return value === undefined || value === null;
}

function isSame(wanted, value) {
  if (Buffer.isBuffer(value) || value instanceof Uint8Array) {
    return wanted !== null && Buffer.compare(Buffer.from(value), Buffer.from(wanted)) === 0;
  }
  if (typeof value === 'number' && typeof wanted === 'number') {
    return Math.abs(value - wanted) < PRECISION;
  }
  if (wanted === value) return true;
  if (isList(value) && isList(wanted)) {
    const [a, b] = [wanted, value].map((list) => JSON.parse(list).toSorted(byIdentity));
    return a.length === b.length && b.every((item, index) => isSameItem(a[index], item));
  }
  if (typeof value === 'string' && value.startsWith('{')) {
    return isSameItem(JSON.parse(wanted), JSON.parse(value));
  }
  return false;
}

/** @param value - a lane, or its name */
function isSameItem(wanted, value) {
  if (typeof value !== 'object') return wanted === value;
  return Object.keys(value).every((name) => isSame(wanted[name] ?? null, value[name]));
}

function isList(value) {
  return typeof value === 'string' && value.startsWith('[');
}

function print(value) {
  return Buffer.isBuffer(value) ? value.toString() : JSON.stringify(value);
}
