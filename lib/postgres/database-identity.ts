import type { WebhookClock } from '../clock/webhook-clock.js';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import type { Database, RunStatement } from './database.js';
import { isForbidden, isOutage } from './database-failure.js';
import { lastingClientOf } from './transactions.js';

/** What distinguishes a database from others, on this server and elsewhere. */
export interface DatabaseIdentity {
  readonly name: string;
  /** Name, object id and, unless the server hides it, the identifier of the server's data directory. */
  readonly key: string;
  readonly statement: string;
}

/** The underscore in `database_name` reveals a mapper that renames columns, before anything is written. */
const identityWith = (system: string): string => `SELECT current_database()::text AS database_name,
  (SELECT oid::text FROM pg_database WHERE datname = current_database()) AS oid, ${system} AS system`;
/** Physical copies, such as a standby, have the same identifier. */
const WITH_SYSTEM = identityWith('(SELECT system_identifier::text FROM pg_control_system())');
const WITHOUT_SYSTEM = identityWith('NULL');

/** Reading the own identity again may take so many timeouts: the transaction that asks may hold the last connection of the pool. */
const TIMEOUTS_TO_READ_AGAIN = 2;

/** The database of a queue or store, which its address may no longer lead to after a fail-over, a restore or a rename. */
export class OwnDatabase {
  private identity: Promise<DatabaseIdentity> | undefined;
  private isReading = false;

  constructor(private readonly database: Pick<Database, 'query' | 'timeout'>) {}

  /** Reads once which database this is. It takes a connection, so it should not happen during a transaction. */
  async identify(): Promise<DatabaseIdentity> {
    this.identity ??= this.read(this.database.timeout);
    return this.identity;
  }

  /** Reads it again, once for all calls that need it at the same time. An embedded database is never replaced. */
  async identifyAgain(): Promise<DatabaseIdentity> {
    const { timeout } = this.database;
    if (timeout !== undefined && !this.isReading) {
      this.identity = this.read(timeout * TIMEOUTS_TO_READ_AGAIN);
    }
    return this.identify();
  }

  private async read(timeout: number | undefined): Promise<DatabaseIdentity> {
    this.isReading = true;
    try {
      return await readIdentity(async (...query) => this.database.query(...query, timeout));
    } catch (error) {
      this.identity = undefined;
      throw error;
    } finally {
      this.isReading = false;
    }
  }
}

async function readIdentity(run: RunStatement): Promise<DatabaseIdentity> {
  try {
    return await identityBy(run, WITH_SYSTEM);
  } catch (error) {
    if (isOutage(error) && !isForbidden(error)) throw error;
    // A hosted server may not permit it. In a transaction of the caller, the attempt would abort the transaction.
    return identityBy(run, WITHOUT_SYSTEM);
  }
}

async function identityBy(run: RunStatement, statement: string): Promise<DatabaseIdentity> {
  const [row] = await run(statement, []);
  const { database_name: name, oid, system } = row!;
  return { name: String(name), key: JSON.stringify([name, oid, system]), statement };
}

/** Connections, or pools, whose identity is known: a pool hands out the same connections again and again. */
const identities = new WeakMap<object, DatabaseIdentity>();

/**
 * Refuses a transaction of another database, where what it writes would never be found.
 *
 * @param use - of the own database, for the message: 'this queue stores its deliveries'
 * @param instead - what to do without the transaction, for the message
 * @throws {@link WebhookDeliveryError} `unsupported_option`
 */
export async function requireSameDatabase(
  tx: object,
  run: RunStatement,
  database: OwnDatabase,
  { use, instead }: { readonly use: string; readonly instead: string },
): Promise<void> {
  const client = lastingClientOf(tx);
  const known = identities.get(client);
  let own = await database.identify();
  const isComparable = known?.statement === own.statement;
  let found = isComparable ? known : await identityBy(run, own.statement);
  if (found.key !== own.key) {
    own = await database.identifyAgain();
    // A connection stays with its database, but a pool opens others.
    const isCurrent = found.statement === own.statement && (client === tx || !isComparable);
    if (!isCurrent) found = await identityBy(run, own.statement);
  }
  identities.set(client, found);
  if (found.key === own.key) return;
  const where = found.name === own.name ? 'on another server' : `"${found.name}"`;
  throw new WebhookDeliveryError(
    'unsupported_option',
    `tx is a transaction of the database ${where}, and ${use} in "${own.name}": pass a ` +
      `transaction of the same database, or ${instead}.`,
  );
}

const FORM_OF_BINARY = Buffer.from([0x00, 0xff]);
const FORMS = "SELECT decode('00ff', 'hex') AS binary, true AS truth";

/** Refuses a client whose parsers are replaced. Other forms of these types would be taken for other payloads, and for `false`: nothing would fail. */
export async function requireUsualForms(database: Database): Promise<void> {
  const [row] = await database.query(FORMS, []);
  const { binary, truth } = row!;
  const isBinary = binary instanceof Uint8Array && Buffer.compare(binary, FORM_OF_BINARY) === 0;
  if (isBinary && truth === true) return;
  throw new WebhookDeliveryError(
    'unsupported_option',
    `The client returns ${isBinary ? 'boolean' : 'bytea'} in another form than node-postgres does: a type parser of the ` +
      'application replaces it. Remove it, or set parsers for the statements that need them only.',
  );
}

/** Milliseconds between the clocks of this process and of the server that are worth a warning. */
const MAX_SKEW = 5_000;

/** Warns if the clock of this process differs from that of the server: other clocks judge the tokens that it signs. */
export async function warnOfSkew(database: Database, clock: WebhookClock): Promise<void> {
  const before = clock.now();
  const [row] = await database.query(
    'SELECT extract(epoch FROM clock_timestamp())::float8 * 1000 AS now',
    [],
  );
  const own = (before + clock.now()) / 2;
  const ahead = Math.round(own - Number(row!['now']));
  if (Math.abs(ahead) < MAX_SKEW) return;
  process.emitWarning(
    `The clock of this process is ${Math.abs(ahead)} ms ${ahead > 0 ? 'ahead of' : 'behind'} that of ${database.server}. ` +
      'Deliveries are scheduled by the clock of the database, but receivers may reject tokens that this process signs: ' +
      'synchronise the clock.',
    { code: 'WEBHOOK_CLOCK_SKEW' },
  );
}
