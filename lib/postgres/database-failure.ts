import { WebhookStoreError } from '../errors/webhook.error.js';

/** How deep libraries wrap an error of their driver into their own. */
const MOST_WRAPPINGS = 5;

/** What an error of PostgreSQL says without quoting a row, a parameter or a statement. */
const SAFE_FIELDS = ['code', 'severity', 'routine', 'schema', 'table', 'column', 'constraint'];

/** `25006`, `42P01`. */
const SQLSTATE = /^[0-9A-Z]{5}$/;

/**
 * The driver's own error, out of those that TypeORM, Drizzle and Prisma make of it. Theirs quote the statement with its values,
 * and whoever logs an error logs its cause as well; so does PostgreSQL in `detail` and `where`, which are left behind.
 */
function driverFault(error: unknown): unknown {
  let fault = error;
  for (let depth = 0; depth < MOST_WRAPPINGS; depth++) {
    const inner = wrappedBy(fault);
    if (inner === undefined) break;
    fault = inner;
  }
  const { code, originalCode } = (fault ?? {}) as { code?: unknown; originalCode?: unknown };
  return SQLSTATE.test(String(originalCode ?? code)) ? withoutValues(fault as object) : fault;
}

/** TypeORM has it in `driverError`, Prisma in `meta`, everybody else in `cause`. */
function wrappedBy(error: unknown): object | undefined {
  const { driverError, meta, cause } = (error ?? {}) as {
    driverError?: unknown;
    meta?: { driverAdapterError?: { cause?: unknown } };
    cause?: unknown;
  };
  const inner = driverError ?? meta?.driverAdapterError?.cause ?? cause;
  return typeof inner === 'object' && inner !== null ? inner : undefined;
}

function withoutValues(fault: object): Error {
  const fields = fault as Record<string, unknown>;
  // Prisma's driver adapters have their own words for some, and keep PostgreSQL's beside them.
  const { originalCode, originalMessage } = fields;
  const bare = new Error(String(originalMessage ?? fields['message']));
  for (const name of SAFE_FIELDS) {
    if (fields[name] !== undefined) Object.assign(bare, { [name]: fields[name] });
  }
  return originalCode === undefined ? bare : Object.assign(bare, { code: originalCode });
}

const BROKEN = 'the connection broke';
const ENDED = 'the transaction has ended: await what is done in it before it commits';
const IN_THE_WAY = 'another transaction was in the way: run this one again';
const UNTRUSTED = 'its certificate is not trusted: name the authority with sslrootcert';

/** What the SQLSTATEs and system errors that an operator can mend mean. */
const REASONS: Readonly<Record<string, string>> = {
  '25006': 'it takes no writes: the transaction is read-only, or the server a standby',
  '25P02': 'the transaction has failed before: roll it back',
  '40001': IN_THE_WAY,
  '40P01': IN_THE_WAY,
  '28P01': 'it refuses the credentials',
  '28000': 'it refuses the credentials',
  '3D000': 'the database does not exist',
  '42501': 'the user may not do that: grant it the schema',
  '55P03': 'somebody else holds the tables: try again',
  '53300': 'it has no connection left',
  '53100': 'its disk is full',
  '57P01': 'it is shutting down',
  '57P03': 'it is starting up',
  ECONNREFUSED: 'nothing listens at its address',
  ENOTFOUND: 'its host is not known',
  EAI_AGAIN: 'its host is not known',
  ETIMEDOUT: 'its address does not answer',
  ECONNRESET: BROKEN,
  EPIPE: BROKEN,
  DEPTH_ZERO_SELF_SIGNED_CERT: UNTRUSTED,
  SELF_SIGNED_CERT_IN_CHAIN: UNTRUSTED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNTRUSTED,
};

/** SQLSTATEs of a schema, table or column that this version of the package knows and the database does not. */
const BEHIND = new Set(['3F000', '42P01', '42703']);

/**
 * Faults without a code: of pg-boss, which may not bring its schema up to date itself, of node-postgres, and of the transactions of
 * Kysely, Knex, Prisma and PGlite.
 */
const MESSAGES: readonly (readonly [RegExp, string])[] = [
  [
    /not installed/,
    'the schema of pg-boss is missing: run npx pg-boss create, or leave migrate on',
  ],
  // Of pg-pool, where the pool has a connectionTimeoutMillis.
  [
    /timeout exceeded when trying to connect/,
    'no connection became free in time: enlarge the pool, or find what keeps its connections',
  ],
  [/transaction (query )?(is |was )?already (complete|committed|rolled back|closed)/i, ENDED],
  [/transaction (is closed|not found)/i, ENDED],
  [
    /connection timeout|timeout expired|timeout exceeded|read timeout/,
    'its address does not answer',
  ],
  [/^Connection terminated/, BROKEN],
  [/password must be a string/, 'it asks for a password'],
  [/does not support SSL/, 'it does not speak TLS, which the URL asks for'],
  [
    /requires migrations/,
    'the schema is of another version of pg-boss: run npx pg-boss migrate, or leave migrate on',
  ],
];

/**
 * Says why the database could not be used, in words of ours: the driver's own may quote a value.
 *
 * @param what - the subject of the sentence: 'The delivery queue'
 */
export function databaseFailure(what: string, cause: unknown): WebhookStoreError {
  if (cause instanceof WebhookStoreError) return cause;
  const fault = driverFault(cause);
  if (BEHIND.has(codeOf(fault))) {
    const remedy = 'run npx nestjs-webhook-token migrate, with the --schema of this store';
    return new WebhookStoreError(
      'schema_behind',
      `${what} does not find its tables as this version of the package has them: ${remedy}.`,
      { cause: fault },
    );
  }
  // node-postgres says in the error that it timed out, and in its cause only that the connection is gone.
  const reason = REASONS[codeOf(fault)] ?? reasonOf(cause) ?? reasonOf(fault);
  const because = reason === undefined ? '.' : `: ${reason}.`;
  return new WebhookStoreError('store_unavailable', `${what} cannot use PostgreSQL${because}`, {
    cause: fault,
  });
}

function reasonOf(cause: unknown): string | undefined {
  const { message } = (cause ?? {}) as { message?: unknown };
  return MESSAGES.find(([pattern]) => pattern.test(String(message)))?.[1];
}

function codeOf(cause: unknown): string {
  const { code } = (cause ?? {}) as { code?: unknown };
  return typeof code === 'string' ? code : '';
}
