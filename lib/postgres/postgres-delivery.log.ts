import {
  DeliveryLog,
  type DeliveryChange,
  type DeliveryCounts,
  type DeliveryFilter,
  type DeliveryPageRequest,
  type LoggedAttempt,
  type LoggedDelivery,
} from '../deliveries/delivery-log.js';
import type { OutgoingDelivery } from '../queue/webhook-delivery.interface.js';
import type { EnqueuedDelivery } from '../queue/webhook-queue.js';
import {
  DeliveryLogStatements,
  PRUNED_AT_ONCE,
  type Query,
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

/** Limits of one statement, so that many deliveries of a large event stay within what a driver can send. */
const MAX_ROWS = 1_000;
const MAX_BYTES = 8 * 1024 * 1024;

/** All optional. */
export interface PostgresDeliveryLogOptions extends PostgresStoreOptions {
  /**
   * Whether deliveries that are published in a transaction are recorded in the same transaction; default `true`. Set it to `false`
   * if the log is in another database than the queue: deliveries are then recorded with their first attempt.
   */
  readonly transactional?: boolean | undefined;
}

/**
 * Stores deliveries and their attempts in PostgreSQL, for any number of processes: on a server, or in the embedded database of a
 * queue. Deliveries recorded in a transaction exist if and only if it commits.
 *
 * It contains no token and no secret, but the payloads as they are sent: everyone who can read the table can read them.
 *
 * ```ts
 * const log = new PostgresDeliveryLog(new Pool({ connectionString }));
 * await log.migrate(); // or npx nestjs-webhook-token migrate, as a user with the privileges
 * ```
 */
export class PostgresDeliveryLog extends DeliveryLog {
  override readonly durable = true;
  override readonly transactional: boolean;

  private readonly statements: DeliveryLogStatements;
  private readonly connection: StoreConnection;

  /**
   * @param client - a pool, or a function that returns one; the application closes it
   * @param options - the default `timeout` of a statement is `'5s'`
   * @throws {@link WebhookConfigurationError} for an invalid client or option
   */
  constructor(client: PostgresClientSource, options: PostgresDeliveryLogOptions = {}) {
    super();
    this.transactional = options.transactional ?? true;
    this.connection = new StoreConnection(DESCRIPTION, client, options);
    this.statements = new DeliveryLogStatements(this.connection.schema);
  }

  /**
   * Brings the schema up to date, for this log and the stores. Several processes may call it at the same time.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`; `schema_ahead` if a newer version of the package has migrated it
   */
  async migrate(): Promise<void> {
    await this.connection.migrate();
  }

  /**
   * Records deliveries as pending; those that are known stay as they are.
   *
   * @param options - `tx` as for a queue: of node-postgres, TypeORM, Prisma, Drizzle, Kysely or Knex, or of PGlite if the log is
   * on one; on the same database
   * @throws {@link WebhookDeliveryError} `unsupported_option` if `tx` is not a transaction
   */
  override async record(
    deliveries: readonly EnqueuedDelivery<OutgoingDelivery>[],
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
      // Dated before the change, so that the change applies to it.
      await this.insert(
        unknown.map(({ delivery, nextAttemptAt, at }) =>
          recordedRow(delivery, nextAttemptAt ?? at, Math.min(at, delivery.createdAt)),
        ),
      );
      await this.changeKnown(unknown);
    }
  }

  override async find(id: string): Promise<LoggedDelivery | undefined> {
    const [row] = await this.connection.search(this.statements.find, [id]);
    return row && loggedDeliveryOf(row);
  }

  override async attempts(id: string): Promise<readonly LoggedAttempt[]> {
    const rows = await this.connection.search(this.statements.attempts, [id]);
    return rows.map(loggedAttemptOf);
  }

  /** A page of deliveries, the newest first. */
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
    let removed = 0;
    for (;;) {
      const [row] = await this.match(this.statements.prune(before, tenant));
      const gone = Number(row?.['gone'] ?? 0);
      removed += gone;
      if (gone < PRUNED_AT_ONCE) return removed;
    }
  }

  private async insert(rows: readonly object[], tx?: unknown): Promise<void> {
    const { record } = this.statements;
    for (const batch of batchesOf(rows)) {
      if (tx === undefined) await this.connection.query(record, [batch]);
      else await this.connection.queryIn(tx, record, [batch]);
    }
  }

  /** @returns the changes of unknown deliveries */
  private async changeKnown(changes: readonly DeliveryChange[]): Promise<DeliveryChange[]> {
    const known = new Set<unknown>();
    for (const batch of batchesOf(changes.map(changedRow))) {
      const rows = await this.connection.query(this.statements.change, [batch]);
      for (const { id } of rows) known.add(id);
    }
    return changes.filter(({ delivery }) => !known.has(delivery.id));
  }

  private async match([statement, values]: Query): Promise<readonly Row[]> {
    return this.connection.search(statement, values);
  }
}

/** Splits changes so that each round has at most one for a delivery: a second change depends on the first. */
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

/** Splits rows into JSON lists within the limits of one statement. */
function* batchesOf(rows: readonly object[]): Generator<string> {
  let batch: string[] = [];
  let bytes = 0;
  for (const row of rows) {
    const text = JSON.stringify(row);
    if (batch.length === MAX_ROWS || (batch.length > 0 && bytes + text.length > MAX_BYTES)) {
      yield `[${batch.join()}]`;
      batch = [];
      bytes = 0;
    }
    batch.push(text);
    bytes += text.length;
  }
  if (batch.length > 0) yield `[${batch.join()}]`;
}
