import { isSchemaName, SCHEMA_RULE } from '../postgres/sql-text.js';
import type { RunStatement } from '../postgres/database.js';
import { jsonOf, printResult, readInput, readSecret, textOf, UsageError } from './arguments.js';
import type { Arguments, CommandIo } from './command.interface.js';
import {
  DATABASE_HELP,
  DATABASE_OPTIONS,
  installed,
  readDatabaseCall,
  requireOptionsOnly,
  requireTables,
  withDatabase,
  withTransaction,
} from './database.js';
import { readConvoy } from './import/convoy.js';
import type { ImportedEndpoint, ImportTarget } from './import/endpoint-importer.js';
import { OfficialKeys, readNestWebhooks } from './import/nest-webhooks.js';
import { type OutpostMode, readOutpost } from './import/outpost.js';
import {
  elementsOf,
  membersOf,
  type SourceEndpoint,
  withoutDeepLevels,
} from './import/source-endpoint.js';
import { readSvix } from './import/svix.js';

/** The environment variables with the sealing key, and with the keys of `@nestjs/webhooks`. */
const SEALING_KEY_VARIABLE = 'WEBHOOK_SEALING_KEY';
const OFFICIAL_KEYS_VARIABLE = 'WEBHOOKS_ENCRYPTION_KEYS';
const OFFICIAL_SCHEMA = 'nest_webhooks';

export const help = `Usage: nestjs-webhook-token import <svix|outpost|convoy|nestjs> [file] [options]

Imports endpoints and their secrets into the endpoint store on PostgreSQL. Prints what it would do,
and writes only with --apply: all endpoints in one transaction, or none if one of them is invalid.
Endpoints that exist are left as they are, so the command can be repeated. The file is JSON, - for
standard input; nestjs without a file reads the tables of @nestjs/webhooks in the same database.

  --apply                write
  --skip-invalid         write the others if some endpoints are invalid
  --mode <mode>          outpost: its DESTINATIONS_WEBHOOK_MODE, default or standard
  --from-schema <name>   nestjs: schema of its tables; default ${OFFICIAL_SCHEMA}
  --sealing-key-id <id>  id of the application's first sealing key; required with --apply
  --sealing-key-file <file>
                         file with this key; default: the variable ${SEALING_KEY_VARIABLE}
  --allow-http           allow http: URLs, as the publisher's allowHttp
  --allow-private        allow addresses of private networks, as allowPrivateNetworks
${DATABASE_HELP}
  --json                 print JSON: { source, applied, endpoints: [{ id, tenant, url, events, state,
                         envelope, result, notes, problems }] }

The secrets of @nestjs/webhooks are decrypted with the variable ${OFFICIAL_KEYS_VARIABLE}.

Exit code: 0 imported, or would be, 1 nothing written because an endpoint is invalid, 2 wrong usage
or a database error.
`;

export const options = {
  ...DATABASE_OPTIONS,
  apply: { type: 'boolean' },
  'skip-invalid': { type: 'boolean' },
  mode: { type: 'string' },
  'from-schema': { type: 'string' },
  'sealing-key-id': { type: 'string' },
  'sealing-key-file': { type: 'string' },
  'allow-http': { type: 'boolean' },
  'allow-private': { type: 'boolean' },
} as const;

const INVALID = 1;
/** Events of an endpoint in the table, of which every row has the width. */
const SHOWN_EVENTS = 3;
/** The SQLSTATE. */
const INSUFFICIENT_PRIVILEGE = '42501';
const SOURCES = ['svix', 'outpost', 'convoy', 'nestjs'] as const;
type Source = (typeof SOURCES)[number];
type Values = Arguments<typeof options>['values'];

/** What `import --json` prints. */
export interface ImportReport {
  readonly source: Source;
  /** Whether the endpoints with the result `create` were written. */
  readonly applied: boolean;
  readonly endpoints: readonly ImportedEndpoint[];
}

/** Imports endpoints, or reports what would be imported. */
export async function run(
  { values, positionals: [name, file, ...more] }: Arguments<typeof options>,
  io: CommandIo,
): Promise<number> {
  requireOptionsOnly(more);
  const source = readSource(name);
  const call = await readDatabaseCall(values, io);
  const mode = readMode(values.mode, source);
  const fromSchema = readOfficialSchema(values, source, file);
  const sealingKey = await readSealingKey(values, call.env);
  const keys = new OfficialKeys(keysOf(call.env[OFFICIAL_KEYS_VARIABLE]));
  const exported = file === undefined ? undefined : await readExport(file, io);
  // Loads Nest, which other commands do not need.
  const { checkUrls, importEndpoints } = await installed(
    async () => import('./import/endpoint-importer.js'),
  );
  const isStrict = values['skip-invalid'] !== true;
  const rows = await withDatabase(call, async (query) => {
    await requireTables(query, call);
    return file === undefined ? readOfficialTable(query, fromSchema) : exported;
  });
  const found = readAll(source, rows, mode, keys);
  if (found.length === 0) throw new UsageError(EMPTY[source]);
  const egress = await checkUrls(found, {
    allowHttp: values['allow-http'],
    allowPrivateNetworks: values['allow-private'],
  });
  const report = await withTransaction<ImportReport>(call, async (client) => {
    const target = { client, schema: call.schema, sealingKey, egress };
    const endpoints = await importEndpoints(found, target);
    const isRefused = isStrict && endpoints.some(({ result }) => result === 'invalid');
    const applied = values.apply === true && !isRefused;
    return { commit: applied, result: { source, applied, endpoints } };
  });
  printResult(io, values.json, report, reportText(report));
  const hasInvalid = report.endpoints.some(({ result }) => result === 'invalid');
  return isStrict && hasInvalid ? INVALID : 0;
}

function readSource(name: string | undefined): Source {
  const source = SOURCES.find((one) => one === name);
  if (source !== undefined) return source;
  throw new UsageError(`Name the source: ${SOURCES.join(', ')}.`);
}

function readMode(mode: string | undefined, source: Source): OutpostMode {
  if (source !== 'outpost') {
    if (mode === undefined) return 'standard';
    throw new UsageError('--mode is only for outpost.');
  }
  if (mode === 'default' || mode === 'standard') return mode;
  throw new UsageError(
    '--mode is required for outpost: default or standard, as its DESTINATIONS_WEBHOOK_MODE; without that setting, default.',
  );
}

function readOfficialSchema(
  { 'from-schema': schema }: Values,
  source: Source,
  file: string | undefined,
): string {
  if (source !== 'nestjs' && file === undefined) {
    throw new UsageError(`Pass the file with the endpoints of ${source}, or - for standard input.`);
  }
  if (schema !== undefined && (source !== 'nestjs' || file !== undefined)) {
    throw new UsageError('--from-schema is only for nestjs without a file.');
  }
  if (isSchemaName(schema ?? OFFICIAL_SCHEMA)) return schema ?? OFFICIAL_SCHEMA;
  throw new UsageError(`--from-schema ${SCHEMA_RULE}.`);
}

/** A dry run needs no key, since it writes nothing. */
async function readSealingKey(
  values: Values,
  env: CommandIo['env'],
): Promise<ImportTarget['sealingKey']> {
  const id = values['sealing-key-id'];
  const key = await readSecret({ 'secret-file': values['sealing-key-file'] }, env, {
    variable: SEALING_KEY_VARIABLE,
    option: '--sealing-key-file',
  });
  if (id !== undefined && key !== undefined) return { id, key };
  if (values.apply !== true) return undefined;
  throw new UsageError(
    `--apply needs the application's first sealing key: pass its id with --sealing-key-id, and set ${SEALING_KEY_VARIABLE}, or pass --sealing-key-file.`,
  );
}

function keysOf(list: string | undefined): string[] {
  return (list ?? '')
    .split(',')
    .map((key) => key.trim())
    .filter((key) => key !== '');
}

async function readExport(file: string, io: CommandIo): Promise<unknown> {
  const name = file === '-' ? 'The input' : file;
  return jsonOf(textOf(await readInput(file, io.stdin), name), name);
}

const EMPTY: Readonly<Record<Source, string>> = {
  svix: 'The file has no endpoints: it must be a list of { app, endpoint, secret, headers }.',
  outpost: 'The file has no destinations: it must be a list of them, as the API lists them.',
  convoy: 'The file has no endpoints: it must be an object { endpoints, subscriptions, filters }.',
  nestjs: 'There are no endpoints to import: the table, or the list of its rows, is empty.',
};

function readAll(
  source: Source,
  exported: unknown,
  mode: OutpostMode,
  keys: OfficialKeys,
): readonly SourceEndpoint[] {
  const rows = withoutDeepLevels(exported);
  if (source === 'convoy') return readConvoy(rows);
  const items = elementsOf(rows);
  if (source === 'svix') return items.map(readSvix);
  if (source === 'outpost') return items.map((item) => readOutpost(item, mode));
  const now = Date.now();
  return items.map((item) => readNestWebhooks(item, keys, now));
}

/** The rows of the table of `@nestjs/webhooks`, as JSON. */
async function readOfficialTable(query: RunStatement, schema: string): Promise<unknown> {
  const name = `${schema}.endpoints`;
  try {
    const [table] = await query('SELECT to_regclass($1::text) IS NOT NULL AS exists', [name]);
    if (membersOf(table)['exists'] !== true) {
      throw new UsageError(
        `The database has no table ${name}: pass --from-schema, or a file with its rows as JSON.`,
      );
    }
    // A row without an id is reported as invalid, as in a file.
    const [row] = await query(
      `SELECT coalesce(json_agg(one ORDER BY to_json(one)->>'id'), '[]')::text AS rows FROM ${name} one`,
      [],
    );
    return JSON.parse(String(row!['rows']));
  } catch (error) {
    if ((error as { code?: unknown }).code !== INSUFFICIENT_PRIVILEGE) throw error;
    throw new UsageError(
      `The user cannot read the table ${name}: have its owner run GRANT USAGE ON SCHEMA ${schema} TO <user>; GRANT SELECT ON ${name} TO <user>;`,
    );
  }
}

function reportText({ applied, endpoints }: ImportReport): string {
  const header = ['result', 'id', 'tenant', 'url', 'events', 'body', 'state'];
  const rows = endpoints.map(({ result, id, tenant, url, events, envelope, state }) => [
    result,
    id ?? '-',
    tenant ?? '-',
    url ?? '-',
    eventsText(events),
    envelope ? 'envelope' : 'data',
    state,
  ]);
  const widths = header.map((_, column) =>
    Math.max(...[header, ...rows].map((row) => row[column]!.length)),
  );
  const lines = [header, ...rows].map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column]!))
      .join('  ')
      .trimEnd(),
  );
  const remarks = endpoints.map(({ notes, problems }) => [
    ...problems.map((problem) => `  ! ${problem}`),
    ...notes.map((note) => `  - ${note}`),
  ]);
  const [head, ...body] = lines;
  return [
    head,
    ...body.flatMap((line, index) => [line, ...remarks[index]!]),
    summaryOf(applied, endpoints),
    '',
  ].join('\n');
}

function eventsText(events: ImportedEndpoint['events']): string {
  // An invalid endpoint has what the export has.
  const all = [events].flat();
  const shown = all.slice(0, SHOWN_EVENTS).join(',');
  return all.length > SHOWN_EVENTS ? `${shown},… (${all.length})` : shown;
}

function summaryOf(applied: boolean, endpoints: readonly ImportedEndpoint[]): string {
  const count = (result: ImportedEndpoint['result']): number =>
    endpoints.filter((one) => one.result === result).length;
  const counts = `${count('exists')} exist, ${count('invalid')} invalid`;
  return applied
    ? `${count('create')} created, ${counts}.`
    : `Nothing was written. ${count('create')} to create, ${counts}.`;
}
