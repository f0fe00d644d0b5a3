import { WebhookDeliveryError } from '../errors/webhook.error.js';
import type { PostgresClient, Row, RunStatement } from './database.js';
import { sqlLiterals, WRITE_NOTHING } from './sql-text.js';

/**
 * The rows of a driver's result: `{ rows }`, a list of those for several statements, or the rows themselves.
 */
function rowsOf(result: unknown): Record<string, unknown>[] {
  if (Array.isArray(result)) {
    return result.every(hasRows) ? result.flatMap(({ rows }) => rows) : (result as never);
  }
  return hasRows(result) ? result.rows : [];
}

export function statementsOn(client: PostgresClient): RunStatement {
  return async (statement, values) => rowsOf(await client.query(statement, [...values]));
}

function hasRows(value: unknown): value is { rows: Record<string, unknown>[] } {
  return Array.isArray((value as { rows?: unknown } | null)?.rows);
}

/** A library whose transactions can be joined. */
interface TransactionAdapter {
  /** What to pass, for an error message. */
  readonly name: string;
  /**
   * @returns a function that runs a statement in the transaction, or `undefined` for an object of another library
   * @throws {@link WebhookDeliveryError} `unsupported_option` for a client of this library on which no transaction is open
   */
  join(tx: object): RunStatement | undefined;
}

/** The error for a client that would write immediately, even if the caller's transaction is rolled back. */
function noTransaction(what: string, remedy: string): WebhookDeliveryError {
  return new WebhookDeliveryError(
    'unsupported_option',
    `tx is ${what}, and no transaction is open on it: ${remedy}.`,
  );
}

/** Whether a value has all these methods. */
export function hasMethods<Name extends string>(
  value: object,
  ...names: readonly Name[]
): value is Record<Name, (...args: never[]) => unknown> {
  return names.every((name) => typeof (value as Record<string, unknown>)[name] === 'function');
}

interface KnexTransactionLike {
  raw(
    text: string,
    bindings: unknown[],
  ): {
    /** Options of the driver, for this statement. */
    options(options: { readonly rowMode: 'array' }): PromiseLike<unknown>;
  };
}

const knexTransaction: TransactionAdapter = {
  name: 'a Transaction of Knex',
  join(tx) {
    if (typeof tx !== 'function' || !hasMethods(tx, 'raw', 'transaction')) return undefined;
    if (!hasMethods(tx, 'commit', 'rollback')) {
      throw noTransaction('Knex itself', 'pass the trx of knex.transaction(async (trx) => …)');
    }
    const trx = tx as unknown as KnexTransactionLike;
    return async (text, values) => {
      const { sql, bindings } = questionMarks(text, values);
      try {
        // As arrays, because `postProcessResponse` of the application may rename the members of objects.
        return namedRows(await trx.raw(sql, bindings).options({ rowMode: 'array' }));
      } catch (error) {
        throw withoutStatement(error);
      }
    };
  },
};

/** The rows of a result of node-postgres with `rowMode: 'array'`. */
function namedRows(result: unknown): Row[] {
  const { fields = [] } = (result ?? {}) as { fields?: readonly { readonly name: string }[] };
  return rowsOf(result).map((values) =>
    Object.fromEntries(fields.map(({ name }, index) => [name, values[index]])),
  );
}

/** Knex binds values to `?`; a literal question mark is written `\?`. */
function questionMarks(
  text: string,
  values: readonly unknown[],
): { sql: string; bindings: unknown[] } {
  const bindings: unknown[] = [];
  const sql = text.replace(/\?|\$(\d+)/g, (_, index: string | undefined) => {
    if (index === undefined) return '\\?';
    bindings.push(values[Number(index) - 1]);
    return '?';
  });
  return { sql, bindings };
}

/** Knex prefixes the driver's message with the statement and its values. */
function withoutStatement(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const message = error.message.split(' - ').at(-1);
  return Object.assign(new Error(message), { code: (error as { code?: unknown }).code });
}

interface KyselyTransactionLike {
  readonly isTransaction: boolean;
  withoutPlugins(): KyselyTransactionLike;
  executeQuery(query: {
    readonly sql: string;
    readonly parameters: readonly unknown[];
    readonly query: { readonly kind: 'RawNode' };
    readonly queryId: { readonly queryId: string };
  }): Promise<unknown>;
}

const kyselyTransaction: TransactionAdapter = {
  name: 'a Transaction of Kysely',
  join(tx) {
    if (!hasMethods(tx, 'executeQuery', 'selectFrom')) return undefined;
    const trx = tx as unknown as KyselyTransactionLike;
    if (!trx.isTransaction) {
      const remedy = 'pass the trx of db.transaction().execute(async (trx) => …)';
      throw noTransaction('Kysely itself', remedy);
    }
    // Plugins of the application may rename columns, or parse JSON.
    const plain = trx.withoutPlugins();
    return async (sql, parameters) => {
      const query = { kind: 'RawNode' } as const;
      const queryId = { queryId: 'nestjs-webhook-token' };
      return rowsOf(await plain.executeQuery({ sql, parameters, query, queryId }));
    };
  },
};

interface DrizzleTransactionLike {
  execute(query: string): Promise<unknown>;
  /** The client of node-postgres (since 8.18) under it: Drizzle itself does not notice that a transaction has ended. */
  readonly session?: { readonly client?: Pick<ClientLike, 'getTransactionStatus'> };
}

const drizzleTransaction: TransactionAdapter = {
  name: 'a transaction of Drizzle',
  join(tx) {
    if (!hasMethods(tx, 'execute', 'select', 'transaction')) return undefined;
    if (!hasMethods(tx, 'rollback')) {
      throw noTransaction('Drizzle itself', 'pass the tx of db.transaction(async (tx) => …)');
    }
    const { execute, session } = tx as unknown as DrizzleTransactionLike;
    if (session?.client?.getTransactionStatus?.() === 'I') {
      throw noTransaction('a transaction of Drizzle that has ended', 'await publish inside it');
    }
    // Drizzle binds values only with its own template tag, which would have to be imported.
    return async (text, values) => rowsOf(await execute.call(tx, sqlLiterals(text, values)));
  },
};

const prismaTransaction: TransactionAdapter = {
  name: 'the tx of an interactive transaction of Prisma',
  join(tx) {
    if (!hasMethods(tx, '$queryRawUnsafe', '$executeRawUnsafe')) return undefined;
    // The client of a transaction cannot connect or disconnect.
    if (hasMethods(tx, '$connect')) {
      const remedy = 'pass the tx of prisma.$transaction(async (tx) => …)';
      throw noTransaction('the PrismaClient', remedy);
    }
    const { $queryRawUnsafe: query } = tx as Record<string, (...args: unknown[]) => unknown>;
    return async (text, values) => rowsOf(await query!.call(tx, text, ...values));
  },
};

/** The members of a QueryRunner of TypeORM that are used. */
interface QueryRunnerLike {
  readonly isTransactionActive: boolean;
  /** The DataSource. */
  readonly connection?: object;
  /** With `true`, every statement returns its rows in `records`. */
  query(text: string, values: unknown[], useStructuredResult: true): Promise<unknown>;
}

const typeormTransaction: TransactionAdapter = {
  name: 'an EntityManager or QueryRunner of TypeORM',
  join(tx) {
    const runner = queryRunnerOf(tx);
    if (runner === undefined) return undefined;
    if (runner === null || !runner.isTransactionActive) {
      const remedy = 'pass the manager of dataSource.transaction(async (manager) => …)';
      throw noTransaction('an EntityManager or QueryRunner', remedy);
    }
    return async (text, values) => {
      const result = await runner.query(text, [...values], true);
      const { records } = (result ?? {}) as { records?: unknown };
      return rowsOf(records ?? result);
    };
  },
};

/** @returns `null` for an EntityManager outside a transaction, `undefined` for an object of another library */
function queryRunnerOf(tx: object): QueryRunnerLike | null | undefined {
  if ('isTransactionActive' in tx && hasMethods(tx, 'query', 'startTransaction')) {
    return tx as unknown as QueryRunnerLike;
  }
  if (!hasMethods(tx, 'query', 'getRepository')) return undefined;
  return (tx as { queryRunner?: QueryRunnerLike }).queryRunner ?? null;
}

/** What outlives a transaction on the same database: the DataSource of TypeORM, the client under Drizzle, or `tx` itself. */
export function lastingClientOf(tx: object): object {
  const dataSource = queryRunnerOf(tx)?.connection;
  return dataSource ?? (tx as DrizzleTransactionLike).session?.client ?? tx;
}

const pgliteTransaction: TransactionAdapter = {
  name: 'a Transaction of PGlite',
  join(tx) {
    if (!hasMethods(tx, 'query', 'exec')) return undefined;
    if (!hasMethods(tx, 'rollback')) {
      const remedy = 'pass the tx of database.transaction(async (tx) => …)';
      throw noTransaction('the PGlite itself', remedy);
    }
    return statementsOn(tx as unknown as PostgresClient);
  },
};

/** A Client or PoolClient of node-postgres. */
interface ClientLike extends PostgresClient {
  /** Since node-postgres 8.18; `I` if no transaction is open. */
  getTransactionStatus?(): string | null;
}

const nodePostgresTransaction: TransactionAdapter = {
  name: 'a Client or PoolClient of node-postgres',
  join(tx) {
    if (!hasMethods(tx, 'query', 'connect')) return undefined;
    const isPool = 'totalCount' in tx;
    if (!isPool && !hasMethods(tx, 'escapeLiteral')) return undefined;
    const client = tx as unknown as ClientLike;
    if (isPool || client.getTransactionStatus?.() === 'I') {
      throw noTransaction(
        isPool ? 'a Pool of node-postgres' : 'a Client of node-postgres',
        "await client.query('BEGIN') on a client of the pool, and pass that client",
      );
    }
    return statementsOn(client);
  },
};

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

/**
 * Wraps a transaction of the caller, of any supported library. The library is recognised by the members of the object, so that
 * none needs to be installed.
 *
 * @param isEmbedded - whether the transaction is on a PGlite
 * @throws {@link WebhookDeliveryError} `unsupported_option`
 */
export function joinTransaction(tx: unknown, isEmbedded = false): RunStatement {
  const adapters = isEmbedded ? PGLITE_ADAPTERS : SERVER_ADAPTERS;
  // A transaction of Knex is a function.
  if ((typeof tx === 'object' && tx !== null) || typeof tx === 'function') {
    for (const adapter of adapters) {
      if (adapter.join(tx) === undefined) continue;
      return async (...query) => (await joinAgain(adapter, tx)(...query)).map(complete);
    }
  }
  const names = adapters.map(({ name }) => name).join(', ');
  throw new WebhookDeliveryError(
    'unsupported_option',
    `tx is not a transaction that can be joined here; pass one of: ${names}.`,
  );
}

/**
 * Checks before each statement that the transaction is still open. A call that was in flight at the rollback learns of it with the answer
 * to its last statement, before the connection can begin another transaction, in which the next statement would run.
 */
function joinAgain(adapter: TransactionAdapter, tx: object): RunStatement {
  try {
    return adapter.join(tx)!;
  } catch {
    throw new Error('transaction is closed');
  }
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
