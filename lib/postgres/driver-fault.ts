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
export function driverFault(error: unknown): unknown {
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
