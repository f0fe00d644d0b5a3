import {
  DeliveryLog,
  type DeliveryChange,
  type DeliveryCounts,
  type DeliveryFilter,
  type DeliveryPageRequest,
  type LoggedAttempt,
  type LoggedDelivery,
} from '../deliveries/delivery-log.js';
import type { EnqueuedDelivery } from '../queue/webhook-queue.js';
import {
  DeliveryLogStatements,
  PRUNED_AT_ONCE,
  type Question,
  changedRow,
  deliveryCountsOf,
  loggedAttemptOf,
  loggedDeliveryOf,
  recordedRow,
} from './delivery-log-statements.js';
import {
  type PostgresClientSource,
  type PostgresStoreOptions,
  StoreConnection,
  type Row,
  type StoreDescription,
} from './store-connection.js';

const DESCRIPTION: StoreDescription = {
  name: 'PostgresDeliveryLog',
  subject: 'The delivery log',
  timeout: 5_000,
};

/** What goes into one statement, so that many deliveries of a large event stay within what a driver can send. */
const MAX_ROWS = 1_000;
const MAX_BYTES = 8 * 1024 * 1024;

/** All optional. */
export interface PostgresDeliveryLogOptions extends PostgresStoreOptions {
  /**
   * Whether deliveries that are published in a transaction are recorded in it; default `true`. `false` where the log lies in
   * another database than the queue: the first attempt tells it of them then.
   */
  readonly transactional?: boolean | undefined;
}

/**
 * Remembers deliveries and their attempts in PostgreSQL, for any number of processes: on a server, or on the embedded database of
 * a queue. What is recorded in a transaction is there if, and only if, that is committed.
 *
 * It holds no token and no secret, and the payloads as they are sent: who may read it sees them.
 *
 * ```ts
 * const log = new PostgresDeliveryLog(new Pool({ connectionString }));
 * await log.migrate(); // or npx nestjs-webhook-token migrate, as a user that may
 * ```
 */
export class PostgresDeliveryLog extends DeliveryLog {
  override readonly durable = true;
  override readonly transactional: boolean;

  private readonly statements: DeliveryLogStatements;
  private readonly connection: StoreConnection;

  /**
   * @param client - a pool, or what gives one; closing it stays the application's
   * @param options - `timeout` is `'5s'` where it is left out, for each statement
   * @throws {@link WebhookConfigurationError} for a client that is none, and for options out of range
   */
  constructor(client: PostgresClientSource, options: PostgresDeliveryLogOptions = {}) {
    super();
    this.transactional = options.transactional ?? true;
    this.connection = new StoreConnection(DESCRIPTION, client, options);
    this.statements = new DeliveryLogStatements(this.connection.schema);
  }

  /**
   * Brings the schema up to date: this log's tables and those of the stores. Any number of processes may do so at once.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`; `schema_ahead` where a newer version of the package has made it
   */
  async migrate(): Promise<void> {
    await this.connection.migrate();
  }

  /**
   * Remembers deliveries as pending; those it knows stay as they are.
   *
   * @param options - `tx` as for a queue: of node-postgres, TypeORM, Prisma, Drizzle, Kysely or Knex, or of PGlite where the log is
   * on one; on the same database
   * @throws {@link WebhookDeliveryError} `unsupported_option` for what is no transaction
   */
  override async record(
    deliveries: readonly EnqueuedDelivery[],
    { tx }: { readonly tx?: unknown } = {},
  ): Promise<void> {
    const rows = deliveries.map(({ delivery, notBefore }) =>
      recordedRow(delivery, notBefore, delivery.createdAt),
    );
    await this.insert(rows, tx);
  }

  override async change(changes: readonly DeliveryChange[]): Promise<void> {
    for (const round of roundsOf(changes)) {
      const unknown = await this.changeKnown(round);
      if (unknown.length === 0) continue;
      // Older than the change that tells of it, so that this one stands.
      await this.insert(
        unknown.map(({ delivery, nextAttemptAt, at }) =>
          recordedRow(delivery, nextAttemptAt ?? at, Math.min(at, delivery.createdAt)),
        ),
      );
      await this.changeKnown(unknown);
    }
  }

  /** What it remembers of a delivery. */
  override async find(id: string): Promise<LoggedDelivery | undefined> {
    const [row] = await this.connection.search(this.statements.find, [id]);
    return row && loggedDeliveryOf(row);
  }

  override async attempts(id: string): Promise<readonly LoggedAttempt[]> {
    const rows = await this.connection.search(this.statements.attempts, [id]);
    return rows.map(loggedAttemptOf);
  }

  /** A page, the newest first. */
  override async list(
    filter: DeliveryFilter,
    page: DeliveryPageRequest,
  ): Promise<readonly LoggedDelivery[]> {
    return (await this.match(this.statements.list(filter, page))).map(loggedDeliveryOf);
  }

  override async counts(filter: DeliveryFilter): Promise<readonly DeliveryCounts[]> {
    return (await this.match(this.statements.counts(filter))).map(deliveryCountsOf);
  }

  override async prune(
    before: number,
    { tenant }: { readonly tenant?: string | undefined } = {},
  ): Promise<number> {
    let forgotten = 0;
    for (;;) {
      const [row] = await this.match(this.statements.prune(before, tenant));
      const gone = Number(row?.['gone'] ?? 0);
      forgotten += gone;
      if (gone < PRUNED_AT_ONCE) return forgotten;
    }
  }

  private async insert(rows: readonly object[], tx?: unknown): Promise<void> {
    const { record } = this.statements;
    for (const some of portionsOf(rows)) {
      if (tx === undefined) await this.connection.query(record, [some]);
      else await this.connection.queryIn(tx, record, [some]);
    }
  }

  /** @returns the changes of deliveries that are not known */
  private async changeKnown(changes: readonly DeliveryChange[]): Promise<DeliveryChange[]> {
    const known = new Set<unknown>();
    for (const some of portionsOf(changes.map(changedRow))) {
      const rows = await this.connection.query(this.statements.change, [some]);
      for (const { id } of rows) known.add(id);
    }
    return changes.filter(({ delivery }) => !known.has(delivery.id));
  }

  private async match([statement, values]: Question): Promise<readonly Row[]> {
    return this.connection.search(statement, values);
  }
}

/** Changes one after another where they are of one delivery: what the second makes of it depends on the first. */
function roundsOf(changes: readonly DeliveryChange[]): DeliveryChange[][] {
  const rounds: DeliveryChange[][] = [];
  const seen = new Map<string, number>();
  for (const change of changes) {
    const { id } = change.delivery;
    const round = seen.get(id) ?? 0;
    seen.set(id, round + 1);
    (rounds[round] ??= []).push(change);
  }
  return rounds;
}

/** Rows as JSON, as many at once as one statement takes well. */
function* portionsOf(rows: readonly object[]): Generator<string> {
  let portion: string[] = [];
  let bytes = 0;
  for (const row of rows) {
    const text = JSON.stringify(row);
    if (portion.length === MAX_ROWS || (portion.length > 0 && bytes + text.length > MAX_BYTES)) {
      yield `[${portion.join()}]`;
      portion = [];
      bytes = 0;
    }
    portion.push(text);
    bytes += text.length;
  }
  if (portion.length > 0) yield `[${portion.join()}]`;
}
