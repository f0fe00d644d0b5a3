// The database of a queue: a pool of connections as of node-postgres, whose statements a table carries out.
import { Transaction } from '../../build/lib/testing/simulation/transaction.js';

/** What recognises each statement of the queue, in this order. */
const STATEMENTS = [
  ['claim', /^WITH due AS/],
  ['claimLimited', /gate AS MATERIALIZED/],
  ['endLimited', /^WITH moment AS[^;]+ended AS MATERIALIZED/],
  ['setLimits', /INSERT INTO \w+\.delivery_limit /],
  ['flag', /SET limited = true/],
  ['findLimitedLanes', /^WITH RECURSIVE lanes/],
  ['redeliver', /^WITH chosen AS/],
  ['deleteOld', /^WITH old AS/],
  ['merge', /^WITH merged AS/],
  ['deleteUnused', /unused AS MATERIALIZED/],
  ['lockKeys', /^WITH given AS[^;]+DISTINCT lane, ordering_key FROM json_to_recordset/],
  [
    'recordLocked',
    /numbered AS MATERIALIZED[^;]+INSERT INTO \w+\.delivery [^;]+ON CONFLICT \(queue, id\)/,
  ],
  ['recordKeyed', /numbered AS MATERIALIZED[^;]+INSERT INTO \w+\.delivery /],
  ['record', /INSERT INTO \w+\.delivery /],
  ['settle', /INSERT INTO \w+\.attempt /],
  ['extend', /^WITH given AS[^;]+SKIP LOCKED[^;]+SET leased_until/],
  ['skip', /^UPDATE \w+\.delivery SET holds_key = false\nWHERE/],
  ['releaseNext', /SET held = false[^;]+json_array_elements_text/],
  ['releaseAll', /SET held = false/],
  ['findDueLanes', /^SELECT given\.lane/],
  ['find', /payload FROM \w+\.delivery\nWHERE queue = \$1::text AND id = ANY/],
  ['list', /^SELECT seq[^;]+ORDER BY created_at DESC/],
];

/**
 * Statements whose effects a table takes back if their transaction is rolled back. The others, which a queue puts into a transaction of
 * their own after a missed deadline, take effect at once: to lose their COMMIT is to lose either the statement or its answer.
 */
const JOINS_TRANSACTION = new Set(['claim', 'claimLimited', 'flag', 'lockKeys', 'recordLocked']);

/** More steps than the package knows; later ones that only add are accepted. */
const APPLIED = Array.from({ length: 64 }, (_, index) => {
  return { version: index + 1, name: `step ${index + 1}`, breaking: false, at: 0 };
});

/** Answers to what a queue asks when it opens. Opening is not part of a run. */
const OPENING = [
  [/^SELECT to_regclass/, [{ there: true, encoding: 'UTF8' }]],
  [/FROM \w+\.migration /, APPLIED],
  [/AS binary, true AS truth$/, [{ binary: Buffer.from([0x00, 0xff]), truth: true }]],
  [/^SELECT current_database/, [{ database_name: 'simulated', oid: '1', system: '1' }]],
];

/** A pool of connections of a process. */
export function poolOf(process, table) {
  const connect = async () => new Connection(table, process);
  const query = async (text, values) => (await connect()).query(text, values);
  return { connect, query };
}

function closed() {
  return Object.assign(new Error('Connection terminated unexpectedly'), { code: '57P01' });
}

/** A connection of a process, with a transaction or without. */
class Connection {
  #transaction;

  constructor(table, process) {
    this.table = table;
    this.process = process;
  }

  async query(text, values = []) {
    return { rows: await this.#run(text, values) };
  }

  /** @param isBroken - then the server rolls back what is open */
  release(isBroken) {
    if (isBroken) this.#transaction?.rollBack();
  }

  on() {}

  off() {}

  async #run(text, values) {
    const { table, process } = this;
    const { simulation, name } = table;
    if (text.startsWith('BEGIN')) {
      this.#transaction = new Transaction(process);
      this.#transaction.watch(simulation);
      simulation.log?.began(this.#transaction);
      return [];
    }
    const transaction = this.#transaction;
    if (text === 'COMMIT') {
      if (!transaction.hasWork) transaction.commit();
      else await process.call(name, 'commit', () => transaction.commit());
      return [];
    }
    const [, answer] = OPENING.find(([pattern]) => pattern.test(text)) ?? [];
    if (answer !== undefined) return answer;
    const operation = STATEMENTS.find(([, pattern]) => pattern.test(text))?.[0];
    simulation.check(operation !== undefined, 'the simulator knows every statement', () => text);
    if (operation === 'deleteOld') return [{ gone: 0 }];
    // No run takes as long as an unused key is kept.
    if (operation === 'deleteUnused') return [{ seen: 0 }];
    // Nothing that is checked depends on counts.
    if (operation === 'merge') return [{ merged: 0, emptied: null }];
    return process.call(name, operation, async () => {
      // The server has rolled it back, and closed the connection.
      if (transaction !== undefined && transaction.state !== 'open') throw closed();
      const joined = JOINS_TRANSACTION.has(operation) ? transaction : undefined;
      const rows = await table[operation](values, text, process, joined);
      simulation.log?.answered(table, operation, { text, values, transaction: joined }, rows);
      return rows;
    });
  }
}
