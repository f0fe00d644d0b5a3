import { WebhookStoreError } from '../errors/webhook.error.js';
import { hasMethods } from './transactions.js';

const BROKEN = 'the connection was lost; retry';
const ENDED = 'the transaction has ended; await everything inside it before it commits';
const CONFLICT = 'it was in conflict with another transaction; run the transaction again';
const LOCKED =
  'another transaction has held the id of an event, an ordering key or a table for too long; try again';
const UNTRUSTED = 'its certificate is not trusted; name the authority with sslrootcert';
const NO_ANSWER =
  'it did not answer in time; check the address, the firewall and its load, and that the pool has a free connection';
/** The server of a PGlite, for messages. */
export const EMBEDDED = 'the embedded database';

const BUSY =
  'it did not answer in time; await the end of a transaction that is open on it, or pass it as tx';
const CANCELLED =
  'it has cancelled the statement, which took longer than a statement_timeout; check its load and its locks';
const UNREFERENCED =
  'a foreign key refers to a row that is not in this database; insert that row first, with a tx of the same database';

/** SQLSTATEs and system errors, by what the operator can do about them. */
const REASONS: Readonly<Record<string, string>> = {
  '42P07':
    'its tables exist, but the table "migration" does not list them, as after pg_dump --schema-only; restore the rows of that table too, or drop the schema if its tables are empty',
  '25006': 'the transaction or the server is read-only; connect to the primary server',
  '23503': UNREFERENCED,
  '08P01': 'a pooler cannot reach the server, or does not support the protocol; check both',
  '08006': BROKEN,
  '25P02': 'an earlier statement of the transaction failed; roll it back',
  '25P03': BROKEN,
  '40001': CONFLICT,
  '40P01': CONFLICT,
  '28P01': 'it refuses the credentials; check user and password',
  '28000': 'it refuses the credentials; check user and password',
  '42601':
    'a reserved word of SQL is the name of the schema, or the server is older than PostgreSQL 13; use another name, or update it',
  '3D000': 'the database does not exist; create it, or correct its name',
  '42501': 'the user lacks a privilege; grant it the schema and its tables',
  '55P03': LOCKED,
  '53300': 'it has no connection left; raise max_connections, or use smaller pools',
  '53100': 'its disk is full',
  '57014': CANCELLED,
  '57P01': 'it is shutting down',
  '57P03': 'it is starting up; try again',
  '57P05': BROKEN,
  ECONNREFUSED: 'the connection was refused; check that the server runs and the address is right',
  ENOENT:
    'its Unix socket, or a file that its URL names, does not exist; check that the server runs, and the paths',
  EHOSTUNREACH: 'the host cannot be reached; check the address and the network',
  ENOTFOUND: 'the host name cannot be resolved; check the address',
  EAI_AGAIN: 'the host name cannot be resolved; check the address',
  ETIMEDOUT: NO_ANSWER,
  ECONNRESET: BROKEN,
  EPIPE: BROKEN,
  DEPTH_ZERO_SELF_SIGNED_CERT: UNTRUSTED,
  SELF_SIGNED_CERT_IN_CHAIN: UNTRUSTED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNTRUSTED,
  ERR_TLS_CERT_ALTNAME_INVALID:
    'its certificate is for another host name; connect by a name that the certificate lists',
};

/** Errors without a code: of node-postgres, and of the transactions of Kysely, Knex, Prisma, TypeORM and PGlite. */
const MESSAGES: readonly (readonly [RegExp, string])[] = [
  // Of pg-pool with a connectionTimeoutMillis.
  [
    /timeout exceeded when trying to connect/,
    'no connection of the pool became free in time; enlarge the pool, or find out what holds its connections',
  ],
  [/transaction (query )?(is |was )?already (complete|committed|rolled back|closed)/i, ENDED],
  [/transaction (is closed|not found)|query runner already released/i, ENDED],
  [/connection timeout|timeout expired|timeout exceeded|read timeout/, NO_ANSWER],
  [/^Connection terminated|is not queryable/, BROKEN],
  [/password must be a string/, 'it asks for a password; add one to the connection'],
  [/does not support SSL/, 'it does not speak TLS, which the URL asks for'],
];

/** SQLSTATEs of a schema, table or column that this version of the package needs and the database lacks. */
const BEHIND = new Set(['3F000', '42P01', '42703']);

/** SQLSTATEs of the connection, resources, the operator, the system and ended sessions, and system errors. */
const OUTAGE = /^(?:(?:08|53|57|58)\w{3}|25P0[34]|E[A-Z]+)$/;

/**
 * Reports why a database could not be used, in words of this package: the driver's message may quote values.
 *
 * @param subject - of the sentence: 'The delivery queue'
 * @param server - as {@link describeServer} returns it
 */
export function databaseFailure(
  subject: string,
  cause: unknown,
  server = 'PostgreSQL',
): WebhookStoreError {
  if (cause instanceof WebhookStoreError) return cause;
  const error = driverError(cause);
  const code = codeOf(error);
  if (BEHIND.has(code)) {
    const remedy = 'run npx nestjs-webhook-token migrate, with the --schema of this store';
    return new WebhookStoreError(
      'schema_behind',
      `${subject} does not find the tables that this version of the package needs in ${server}: ${remedy}.`,
      { cause: error },
    );
  }
  const found = reasonOf(cause, error) ?? unknownReason(code);
  const reason = found === NO_ANSWER && server === EMBEDDED ? BUSY : found;
  return new WebhookStoreError(
    'store_unavailable',
    `${subject} cannot use ${withAddress(server, error)}: ${reason}.`,
    { cause: error },
  );
}

/** Whether an error is one of the server or of the connection, and not of the values of a statement, of its time or of its locks. */
export function isOutage(cause: unknown): boolean {
  const error = driverError(cause);
  const code = codeOf(error);
  const reason = reasonOf(cause, error);
  if (reason === undefined) return BEHIND.has(code) || OUTAGE.test(code);
  return ![CONFLICT, LOCKED, CANCELLED, UNREFERENCED].includes(reason);
}

/** Whether the user lacks the privilege for a statement. */
export function isForbidden(cause: unknown): boolean {
  return codeOf(driverError(cause)) === '42501';
}

/** Whether PostgreSQL has rolled a transaction back because of a concurrent one, and it can be repeated. */
export function isConflict(cause: unknown): boolean {
  return ['40001', '40P01'].includes(codeOf(driverError(cause)));
}

/** Whether an earlier statement of the transaction has failed, so that no other one runs. */
export function isAborted(cause: unknown): boolean {
  return codeOf(driverError(cause)) === '25P02';
}

/**
 * Names a server by host and port, without credentials: `PostgreSQL at db.example:5432`.
 *
 * @param source - a connection string, a Pool of node-postgres, or a PGlite
 */
export function describeServer(source: unknown): string {
  if (typeof source === 'string') return serverOfUrl(source);
  if (typeof source !== 'object' || source === null) return 'PostgreSQL';
  if (hasMethods(source, 'exec', 'transaction')) return EMBEDDED;
  const { options } = source as {
    options?: { connectionString?: unknown; host?: unknown; port?: unknown };
  };
  if (typeof options?.connectionString === 'string') return serverOfUrl(options.connectionString);
  if (typeof options?.host !== 'string') return 'PostgreSQL';
  return `PostgreSQL at ${addressOf(options.host, options.port)}`;
}

function serverOfUrl(url: string): string {
  if (!URL.canParse(url)) return 'PostgreSQL';
  const { hostname, port, searchParams } = new URL(url);
  const host = hostname === '' ? searchParams.get('host') : hostname;
  return host === null ? 'PostgreSQL' : `PostgreSQL at ${addressOf(host, port)}`;
}

/** Adds the address that a failed connection names, if the configuration of the server is not known. */
function withAddress(server: string, error: unknown): string {
  if (server !== 'PostgreSQL') return server;
  // Node tries each address of a host.
  const [first = error] = (error as { errors?: unknown[] } | undefined)?.errors ?? [];
  const { address, hostname, port } = (first ?? {}) as Record<string, unknown>;
  const host = address ?? hostname;
  return typeof host === 'string' ? `${server} at ${addressOf(host, port)}` : server;
}

function addressOf(host: string, port: unknown): string {
  // A Unix socket, or a host that the resolver did not find.
  if (host.startsWith('/')) return host;
  const isIPv6 = host.includes(':') && !host.startsWith('[');
  const digits = typeof port === 'number' || typeof port === 'string' ? String(port) : '';
  return `${isIPv6 ? `[${host}]` : host}:${digits === '' ? '5432' : digits}`;
}

function unknownReason(code: string): string {
  return code === ''
    ? 'the query failed; see the cause of this error'
    : `the query failed with code ${code}; see the cause of this error`;
}

/** @param error - the driver's own. node-postgres reports a timeout only in the error that wraps it */
function reasonOf(cause: unknown, error: unknown): string | undefined {
  return REASONS[codeOf(error)] ?? reasonIn(cause) ?? reasonIn(error);
}

function reasonIn(error: unknown): string | undefined {
  const { message } = (error ?? {}) as { message?: unknown };
  return MESSAGES.find(([pattern]) => pattern.test(String(message)))?.[1];
}

function codeOf(error: unknown): string {
  const { code } = (error ?? {}) as { code?: unknown };
  return typeof code === 'string' && /^\w{1,50}$/.test(code) ? code : '';
}

/** How deep libraries wrap the error of their driver. */
const MAX_DEPTH = 5;

/** What an error of PostgreSQL says without quoting a row, a parameter or a statement. */
const SAFE_FIELDS = ['code', 'severity', 'routine', 'schema', 'table', 'column', 'constraint'];

const SQLSTATE = /^[0-9A-Z]{5}$/;

/**
 * The driver's own error, out of those that TypeORM, Drizzle and Prisma wrap it in.
 *
 * Theirs quote the statement with its values, and a logger prints the cause of an error too. PostgreSQL quotes values in
 * `detail` and `where`, which are left out.
 */
function driverError(wrapped: unknown): unknown {
  let error = wrapped;
  for (let depth = 0; depth < MAX_DEPTH; depth++) {
    const inner = wrappedError(error);
    if (inner === undefined) break;
    error = inner;
  }
  const { code, originalCode } = (error ?? {}) as { code?: unknown; originalCode?: unknown };
  return SQLSTATE.test(String(originalCode ?? code)) ? withoutValues(error as object) : error;
}

/** TypeORM has it in `driverError`, Prisma in `meta`, the others in `cause`. */
function wrappedError(error: unknown): object | undefined {
  const {
    driverError: ofTypeOrm,
    meta,
    cause,
  } = (error ?? {}) as {
    driverError?: unknown;
    meta?: { driverAdapterError?: { cause?: unknown } };
    cause?: unknown;
  };
  const inner = ofTypeOrm ?? meta?.driverAdapterError?.cause ?? cause;
  return typeof inner === 'object' && inner !== null ? inner : undefined;
}

function withoutValues(error: object): Error {
  const fields = error as Record<string, unknown>;
  // Driver adapters of Prisma rename code and message, and keep those of PostgreSQL beside them.
  const { originalCode, originalMessage } = fields;
  const safe = new Error(String(originalMessage ?? fields['message']));
  for (const name of SAFE_FIELDS) {
    if (fields[name] !== undefined) Object.assign(safe, { [name]: fields[name] });
  }
  return originalCode === undefined ? safe : Object.assign(safe, { code: originalCode });
}
