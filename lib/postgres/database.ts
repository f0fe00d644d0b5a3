import { inTime, type WebhookClock } from '../clock/webhook-clock.js';
import { describeServer, isAborted, isConflict } from './database-failure.js';
import { OwnDatabase } from './database-identity.js';
import { hasMethods, joinTransaction, statementsOn } from './transactions.js';

/** Runs single statements: a `Pool` of node-postgres, a PGlite. */
export interface PostgresClient {
  /** @returns `{ rows }`, or a list of those for several statements */
  query(text: string, values?: unknown[]): Promise<unknown>;
}

/** The members of a `Pool` of node-postgres that are used. */
export interface PostgresPool extends PostgresClient {
  /** Takes a connection out of the pool. */
  connect(): Promise<PostgresPoolClient>;
}

/** The members of a `PoolClient` of node-postgres that are used. */
export interface PostgresPoolClient extends PostgresClient {
  /**
   * Returns the connection to the pool.
   *
   * @param destroy - closes the connection instead
   */
  release(destroy?: boolean): void;
  /** Listens for errors of the connection while it is out of the pool. */
  on(event: 'error', listener: (error: Error) => void): unknown;
  /** Listens for notifications of `LISTEN`. */
  on(
    event: 'notification',
    listener: (message: { readonly payload?: string | undefined }) => void,
  ): unknown;
  off(event: 'error', listener: (error: Error) => void): unknown;
}

/** The members of a PGlite that are used. */
interface EmbeddedClient extends PostgresClient {
  exec(text: string): Promise<unknown>;
  transaction<T>(work: (tx: EmbeddedClient) => Promise<T>): Promise<T>;
  listen(channel: string, receive: (payload: string) => void): Promise<() => Promise<void>>;
}

/**
 * A client, or a function that returns one and is called for each statement: `() => queue.database()` of a
 * {@link PgliteQueue}.
 */
export type PostgresClientSource =
  PostgresClient | (() => PostgresClient | Promise<PostgresClient>);

/** A row, by column. */
export type Row = Readonly<Record<string, unknown>>;

/** @param values - strings, numbers, booleans and `null`, which every driver sends alike */
export type RunStatement = (
  statement: string,
  values: readonly unknown[],
) => Promise<readonly Row[]>;

/** How often a statement runs again that PostgreSQL has aborted because of a concurrent transaction. */
const MAX_CONFLICTS = 5;

/** Milliseconds after a missed deadline in which the server limits the time of each statement, which costs two round trips. */
const OVERDUE = 60_000;

/**
 * Makes PostgreSQL read the index that matches `ORDER BY`. Without current statistics (after a burst, before the first
 * ANALYZE) it expects a few rows, and would collect and sort the whole backlog with a bitmap scan.
 */
const IN_INDEX_ORDER = 'SET LOCAL enable_bitmapscan = off';

/**
 * Runs statements on a pool or a PGlite, each with a deadline.
 *
 * A host can vanish without closing its connections, and a driver would wait for its answer forever. A connection that
 * missed a deadline or failed is therefore destroyed, and the pool opens another one. The server does not notice: a statement that
 * waits for a lock keeps its backend. After a missed deadline, statements therefore limit their own time on the server for a while.
 */
export class Database {
  private lastServer: string;
  /** Until when each statement runs in a transaction, whose settings make the server give it up too. Epoch milliseconds. */
  private overdueUntil = 0;
  /** Its identity, for transactions of the caller. */
  readonly own = new OwnDatabase(this);

  /**
   * @param timeout - milliseconds that a connection, and the statement or transaction on it, may take each; `undefined` for no deadline,
   *   as on an embedded database
   */
  constructor(
    private readonly source: PostgresClientSource,
    private readonly clock: WebhookClock,
    readonly timeout?: number,
  ) {
    this.lastServer = describeServer(source);
  }

  /** The server, for messages; see {@link describeServer}. */
  get server(): string {
    return this.lastServer;
  }

  /**
   * Runs one statement in a transaction of its own, and again after a deadlock or a serialization failure, which READ COMMITTED
   * prevents if the default of the server is stricter.
   */
  async query(
    statement: string,
    values: readonly unknown[],
    ms = this.timeout,
  ): Promise<readonly Row[]> {
    return this.withClient(ms, async (client, needsTransaction) =>
      needsTransaction
        ? inTransaction(client, ms, async (run) => run(statement, values))
        : statementsOn(client)(statement, values),
    );
  }

  /** As `query`, for a statement whose rows are read in the order of an index. */
  async queryInIndexOrder(statement: string, values: readonly unknown[]): Promise<readonly Row[]> {
    return this.transaction(async (run) => run(statement, values), IN_INDEX_ORDER);
  }

  /**
   * Runs statements in a transaction, and all of them again after a deadlock or a serialization failure.
   *
   * @param setting - a statement to run first
   */
  async transaction<T>(work: (run: RunStatement) => Promise<T>, setting = ''): Promise<T> {
    const { timeout } = this;
    return this.withClient(timeout, async (client) =>
      inTransaction(client, timeout, work, setting),
    );
  }

  /**
   * Wraps a transaction of the caller.
   *
   * @throws {@link WebhookDeliveryError} `unsupported_option` if `tx` is not a transaction
   */
  async join(tx: unknown): Promise<RunStatement> {
    // Embedded databases and servers have different libraries, with different transactions.
    return joinTransaction(tx, isEmbedded(await this.client()));
  }

  /**
   * Receives the notifications of a channel, on a connection that nothing else uses.
   *
   * @param onLost - called when the connection is lost
   * @returns a function that ends it; `undefined` if the pool has no connection to spare
   */
  async listen(
    channel: string,
    receive: (payload: string) => void,
    onLost: () => void,
  ): Promise<(() => Promise<void>) | undefined> {
    const client = await this.client();
    if (isEmbedded(client)) return client.listen(channel, receive);
    if (!isPool(client)) throw new TypeError('The client cannot listen.');
    if (optionsOf(client)?.['max'] === 1) {
      warnOfSingleConnection(this.server);
      return undefined;
    }
    const connection = await this.connect(client, this.timeout);
    connection.on('notification', ({ payload }) => receive(payload ?? ''));
    try {
      await this.inTime(this.timeout, async () => connection.query(`LISTEN ${channel}`));
    } catch (error) {
      connection.release(true);
      throw error;
    }
    connection.on('error', onLost);
    return async () => {
      connection.off('error', onLost);
      connection.release(true);
    };
  }

  /** @param work - also gets whether a single statement needs a transaction; a client without connections of its own has none */
  private async withClient<T>(
    ms: number | undefined,
    work: (client: PostgresClient, needsTransaction: boolean) => Promise<T>,
  ): Promise<T> {
    let conflict: unknown;
    for (let conflicts = 0; ; conflicts++) {
      try {
        const client = await this.inTime(ms, async () => this.client());
        const needsTransaction = conflicts > 0 || this.isOverdue;
        return await (isPool(client)
          ? this.withConnection(client, ms, async (on) => work(on, needsTransaction))
          : this.inTime(ms, async () => work(client, false)));
      } catch (error) {
        // The caller has opened a transaction on this client, which the conflict has ended.
        if (conflict !== undefined && isAborted(error)) throw conflict;
        if (!isConflict(error) || conflicts === MAX_CONFLICTS) throw error;
        conflict = error;
      }
    }
  }

  private async withConnection<T>(
    pool: PostgresPool,
    ms: number | undefined,
    work: (client: PostgresClient) => Promise<T>,
  ): Promise<T> {
    const connection = await this.connect(pool, ms);
    let failed = true;
    try {
      const result = await this.inTime(ms, async () => work(connection));
      failed = false;
      return result;
    } finally {
      if (!failed) connection.off('error', ignore);
      connection.release(failed);
    }
  }

  private get isOverdue(): boolean {
    const left = this.overdueUntil - this.clock.now();
    // The clock may have been set back.
    return left > 0 && left <= OVERDUE;
  }

  private async connect(pool: PostgresPool, ms: number | undefined): Promise<PostgresPoolClient> {
    const connecting = checkOut(pool);
    try {
      return await this.inTime(ms, async () => connecting);
    } catch (error) {
      connecting.then(giveBack).catch(() => {});
      throw error;
    }
  }

  private async inTime<T>(ms: number | undefined, work: () => Promise<T>): Promise<T> {
    if (ms === undefined) return work();
    return inTime(this.clock, ms, work, () => {
      this.overdueUntil = this.clock.now() + OVERDUE;
      return new Error('timeout expired');
    });
  }

  private async client(): Promise<PostgresClient> {
    if (typeof this.source !== 'function') return this.source;
    const client = await this.source();
    this.lastServer = describeServer(client);
    return client;
  }
}

/**
 * Takes a connection out of a pool, with a listener for its errors: without one, a lost connection would end the process.
 * Its statement reports the error.
 *
 * The pool passes the connection to a callback at once, to a promise one microtask later; an error between the two would have
 * no listener. A pool that only returns promises ignores the callback.
 */
async function checkOut(pool: PostgresPool): Promise<PostgresPoolClient> {
  const connect = pool.connect.bind(pool) as (
    callback: (error: Error | undefined, connection: PostgresPoolClient | undefined) => void,
  ) => Promise<PostgresPoolClient | undefined> | undefined;
  return new Promise((resolve, reject) => {
    const listenTo = (connection: PostgresPoolClient): void => {
      connection.on('error', ignore);
      resolve(connection);
    };
    connect((error, connection) => (connection ? listenTo(connection) : reject(error)))?.then(
      (connection) => connection && listenTo(connection),
      reject,
    );
  });
}

function giveBack(connection: PostgresPoolClient): void {
  connection.off('error', ignore);
  connection.release();
}

export function isEmbedded(client: object): client is EmbeddedClient {
  return hasMethods(client, 'query', 'exec', 'transaction');
}

/** Whether a client is a pool, whose connections can be destroyed. */
export function isPool(client: unknown): client is PostgresPool {
  return (
    typeof client === 'object' &&
    client !== null &&
    hasMethods(client, 'query', 'connect') &&
    !isEmbedded(client) &&
    !hasMethods(client, 'escapeLiteral')
  );
}

/** @param setting - a statement to run first */
async function inTransaction<T>(
  client: PostgresClient,
  ms: number | undefined,
  work: (run: RunStatement) => Promise<T>,
  setting = '',
): Promise<T> {
  if (isEmbedded(client)) {
    return client.transaction(async (tx) => {
      if (setting !== '') await tx.exec(setting);
      return work(statementsOn(tx));
    });
  }
  await client.query(`BEGIN ISOLATION LEVEL READ COMMITTED; ${setting}; ${endsInTime(ms)}`);
  const result = await work(statementsOn(client));
  await client.query('COMMIT');
  return result;
}

/**
 * Makes the server end a transaction whose client has given up or vanished. It would wait for a lock or for that client for hours
 * otherwise, and keep the rows locked that the transaction has claimed.
 */
function endsInTime(ms: number | undefined): string {
  // Later than the client, whose error counts as an outage: outcomes are then retried until the lock ends.
  const timeout = Math.ceil((ms ?? 0) * 1.25);
  return `SET LOCAL statement_timeout = ${timeout}; SET LOCAL idle_in_transaction_session_timeout = ${timeout}`;
}

/**
 * Warns about a pool that waits forever for a server that has vanished.
 *
 * The library destroys connections that do not answer, but cannot give up those that a pool is still opening.
 *
 * @param owner - what the pool was passed to
 */
export function warnOfMissingTimeouts(owner: string, client: object): void {
  const options = optionsOf(client);
  if (!isPool(client) || options === undefined) return;
  const missing = ['query_timeout', 'connectionTimeoutMillis'].filter(
    (name) => !(Number(options[name]) > 0),
  );
  if (missing.length === 0) return;
  process.emitWarning(
    `The pool of ${owner} has no ${missing.join(' and no ')}: if its server vanishes, statements of the application ` +
      'wait until the operating system closes the connection, and connections that are being opened can fill the pool. ' +
      'Set query_timeout, connectionTimeoutMillis and keepAlive.',
    { code: 'WEBHOOK_POOL_WITHOUT_TIMEOUT' },
  );
}

/** The options of a `Pool` of node-postgres, with its defaults filled in. */
export function optionsOf(client: object): Readonly<Record<string, unknown>> | undefined {
  const { options } = client as { options?: unknown };
  return typeof options === 'object' ? (options as Record<string, unknown>) : undefined;
}

/** LISTEN would keep the only connection, and every statement of the application would wait for it. */
function warnOfSingleConnection(server: string): void {
  process.emitWarning(
    `The delivery queue receives no notifications from ${server}, because its pool has only one connection; it polls ` +
      'instead. Raise max of the pool to 2 or more, or set notify: false.',
    { code: 'WEBHOOK_QUEUE_NOTIFY_UNSUPPORTED' },
  );
}

function ignore(): void {}
