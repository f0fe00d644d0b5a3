import { WebhookDeliveryError } from '../../errors/webhook.error.js';
import type { Row, RunStatement } from '../database.js';
import { WRITE_NOTHING } from '../sql-text.js';
import {
  drizzleTransaction,
  knexTransaction,
  kyselyTransaction,
  nodePostgresTransaction,
  pgliteTransaction,
  prismaTransaction,
  type TransactionAdapter,
  typeormTransaction,
} from './transaction-adapters.js';

/** The adapters with the most distinctive members come first. */
const SERVER_ADAPTERS: readonly TransactionAdapter[] = [
  knexTransaction,
  kyselyTransaction,
  typeormTransaction,
  prismaTransaction,
  drizzleTransaction,
  nodePostgresTransaction,
];

const PGLITE_ADAPTERS: readonly TransactionAdapter[] = [
  pgliteTransaction,
  kyselyTransaction,
  drizzleTransaction,
];

/**
 * Wraps a transaction of the caller, of any supported library. The library is recognised by the members of the object, so that
 * none needs to be installed.
 *
 * @throws {@link WebhookDeliveryError} `unsupported_option`
 */
export function joinTransaction(tx: unknown): RunStatement {
  return join(tx, SERVER_ADAPTERS);
}

/** As {@link joinTransaction}, for a transaction on a PGlite. */
export function joinEmbeddedTransaction(tx: unknown): RunStatement {
  return join(tx, PGLITE_ADAPTERS);
}

/**
 * Runs the statements of one call in a transaction of the caller. Once the call has ended, at its deadline, it runs no further ones: they
 * could follow a rollback.
 *
 * @param inTime - runs work until a deadline
 */
export async function runInCall<T>(
  join: () => Promise<RunStatement>,
  inTime: (work: () => Promise<T>) => Promise<T>,
  work: (run: RunStatement) => Promise<T>,
): Promise<T> {
  let hasEnded = false;
  try {
    return await inTime(async () => {
      const run = await join();
      return work(async (...query) => {
        if (hasEnded) throw new Error('transaction is closed');
        return run(...query);
      });
    });
  } finally {
    hasEnded = true;
  }
}

/**
 * Runs a statement that does nothing unless {@link HAS_WRITTEN}. One that reaches the connection after a rollback, since its call was not
 * awaited, would be committed at once.
 *
 * @param isDone - whether the rows show that the statement has done something
 */
export async function runInTransaction(
  run: RunStatement,
  statement: string,
  values: readonly unknown[],
  isDone: (rows: readonly Row[]) => boolean,
): Promise<readonly Row[]> {
  const rows = await run(statement, values);
  if (isDone(rows)) return rows;
  // It may be the first statement of the transaction that writes.
  await run(WRITE_NOTHING, []);
  return run(statement, values);
}

function join(tx: unknown, adapters: readonly TransactionAdapter[]): RunStatement {
  // A transaction of Knex is a function.
  if ((typeof tx === 'object' && tx !== null) || typeof tx === 'function') {
    for (const adapter of adapters) {
      const run = adapter.join(tx);
      if (run !== undefined) return async (...query) => (await run(...query)).map(complete);
    }
  }
  const names = adapters.map(({ name }) => name).join(', ');
  throw new WebhookDeliveryError(
    'unsupported_option',
    `tx is not a transaction that can be joined here; pass one of: ${names}.`,
  );
}

/**
 * Makes reading a column that a row lacks an error. A mapper of the application may rename or remove columns, and `undefined`
 * would be taken for a value.
 */
function complete(row: Row): Row {
  return new Proxy(row, {
    get(columns, name) {
      const value: unknown = Reflect.get(columns, name);
      if (value !== undefined) return value;
      throw new WebhookDeliveryError(
        'unsupported_option',
        `tx returned a row without the column "${String(name)}": a mapper of its library renames or removes columns, such as an ` +
          'extension of Prisma, postProcessResponse of Knex or transform of Postgres.js. Exclude raw queries from it, or ' +
          'pass a transaction that was opened without it.',
      );
    },
  });
}
