import { randomBytes } from 'node:crypto';
import { isIPv6 } from 'node:net';
import type { LoggerService } from '@nestjs/common';
import type { ConsoleCapability } from '../console/console-api.js';
import type { StandaloneConsole } from '../console/standalone-console.js';
import { isLoopback } from '../egress/egress-policy.js';
import type { RunStatement } from '../postgres/database.js';
import { interruption, readText, readPort, UsageError } from './arguments.js';
import type { Arguments, CommandIo } from './command.interface.js';
import {
  DATABASE_HELP,
  DATABASE_OPTIONS,
  type DatabaseCall,
  installed,
  openPool,
  readDatabaseCall,
  requireOptionsOnly,
  requireTables,
  withDatabase,
} from './database.js';

/** The environment variable with the token to log in with. */
const TOKEN_VARIABLE = 'WEBHOOK_CONSOLE_TOKEN';
const MIN_TOKEN = 32;
const DEFAULT_QUEUE = 'webhook-deliveries';

export const help = `Usage: nestjs-webhook-token console [options]

Shows the deliveries, endpoints and received requests of the PostgreSQL stores in a browser, without
the application. It is read-only unless --allow permits more, and never makes an attempt itself. Stop it
with Ctrl+C.

${DATABASE_HELP}
  --allow <list>         view, view-payload, redeliver, manage-endpoints, separated by commas; default view
  --queue <name>         the publisher's queue; default ${DEFAULT_QUEUE}
  --receiver-queue <name>
                         queue of a receiver with acknowledge: 'queued', for dead letters; repeatable
  --port <port>          default 4400; 0 for a free one
  --host <address>       default 127.0.0.1; an address that other machines reach requires your own token
  --token-file <file>    file with the token to log in, at least ${MIN_TOKEN} characters; default: the variable
                         ${TOKEN_VARIABLE}, or a random token in the link that is printed
  --json                 print one line of JSON: {"url":"..."}

Exit code: 0 interrupted, 2 wrong usage or a database error, 3 the port cannot be used.
`;

export const options = {
  ...DATABASE_OPTIONS,
  allow: { type: 'string' },
  queue: { type: 'string' },
  'receiver-queue': { type: 'string', multiple: true },
  port: { type: 'string' },
  host: { type: 'string' },
  'token-file': { type: 'string' },
} as const;

const UNUSABLE_PORT = 3;
const CONNECTIONS = 5;
const ALLOWED: readonly ConsoleCapability[] = [
  'view',
  'view-payload',
  'redeliver',
  'manage-endpoints',
];

type Given = Arguments<typeof options>;
type Values = Given['values'];

/** Serves the console until `io.signal` is aborted. */
export async function run({ values, positionals }: Given, io: CommandIo): Promise<number> {
  requireOptionsOnly(positionals);
  const call = await readDatabaseCall(values, io);
  const capabilities = readCapabilities(values.allow);
  const { host = '127.0.0.1' } = values;
  const port = readPort(values.port ?? '4400');
  const ownToken = await readToken(values, call.env, host);
  const token = ownToken ?? randomBytes(32).toString('base64url');
  const { queue = DEFAULT_QUEUE, 'receiver-queue': receiverQueues = [] } = values;
  await withDatabase(call, async (query) => requireQueues(query, call, values));
  const { createStandaloneConsole } = await installed(
    async () => import('../console/standalone-console.js'),
  );
  const pool = await openPool(call, CONNECTIONS);
  try {
    const console = await installed(async () =>
      createStandaloneConsole({
        pool,
        schema: call.schema,
        queue,
        receiverQueues,
        capabilities,
        actor: io.env['USER'] ?? io.env['USERNAME'],
        token,
        logger: loggerTo(io.stderr),
      }),
    );
    const fragment = ownToken === undefined ? `#token=${token}` : '';
    const show = (bound: number): void => {
      const url = `http://${isIPv6(host) ? `[${host}]` : host}:${bound}/console/${fragment}`;
      io.stdout.write(values.json === true ? `${JSON.stringify({ url })}\n` : `Open ${url}\n`);
    };
    return await serve(console, port, host, show, io);
  } finally {
    await pool.end();
  }
}

/** @param show - called with the port once the console listens */
async function serve(
  console: StandaloneConsole,
  port: number,
  host: string,
  show: (port: number) => void,
  io: CommandIo,
): Promise<number> {
  try {
    show(await console.listen(port, host));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    io.stderr.write(`Port ${port} of ${host} cannot be used (${code}).\n`);
    await console.close();
    return UNUSABLE_PORT;
  }
  await interruption(io);
  await console.close();
  return 0;
}

function readCapabilities(allow: string | undefined): readonly ConsoleCapability[] {
  const wanted = allow === undefined ? [] : allow.split(',').map((one) => one.trim());
  if (wanted.includes('manage-secrets')) {
    throw new UsageError(
      '--allow manage-secrets is not possible, because only the application has the sealing keys: use the console of the application.',
    );
  }
  const unknown = wanted.find((one) => !ALLOWED.includes(one as ConsoleCapability));
  if (unknown !== undefined) {
    throw new UsageError(
      `--allow does not know ${JSON.stringify(unknown)}: list some of ${ALLOWED.join(', ')}.`,
    );
  }
  return [...new Set(['view', ...(wanted as ConsoleCapability[])] as const)];
}

/** @returns `undefined` if the user has set none, which is only safe on this machine */
async function readToken(
  { 'token-file': file }: Values,
  env: CommandIo['env'],
  host: string,
): Promise<string | undefined> {
  const given =
    file === undefined
      ? env[TOKEN_VARIABLE]
      : (await readText(file, 'The file of --token-file')).trim();
  if (given !== undefined && given !== '') {
    if (given.length >= MIN_TOKEN) return given;
    throw new UsageError(
      `The token is shorter than ${MIN_TOKEN} characters: generate one with "openssl rand -base64 32".`,
    );
  }
  if (isLoopback(host)) return undefined;
  throw new UsageError(
    `--host ${host} lets other machines connect: set ${TOKEN_VARIABLE} or --token-file, and use TLS in front of it.`,
  );
}

/** Refuses a schema without tables, and a queue that is not in it. */
async function requireQueues(
  query: RunStatement,
  call: DatabaseCall,
  { queue, 'receiver-queue': receiverQueues = [] }: Values,
): Promise<void> {
  await requireTables(query, call);
  const { schema } = call;
  const wanted = [
    ...(queue === undefined ? [] : [['--queue', queue]]),
    ...receiverQueues.map((name) => ['--receiver-queue', name]),
  ] as const;
  if (wanted.length === 0) return;
  const known = (await query(queueNames(schema), [])).map(({ name }) => name);
  const missing = wanted.find(([, name]) => !known.includes(name));
  if (missing === undefined) return;
  const [option, name] = missing;
  const others = known.map((one) => JSON.stringify(one)).join(', ');
  throw new UsageError(
    `${option}: the schema ${schema} has no deliveries of a queue ${JSON.stringify(name)}; it has ${others || 'none of any queue'}.`,
  );
}

/** Jumps from one queue to the next in an index: there are few queues and many deliveries. */
function queueNames(schema: string): string {
  return `WITH RECURSIVE known AS (
  SELECT min(queue) AS name FROM ${schema}.delivery
  UNION ALL
  SELECT (SELECT min(queue) FROM ${schema}.delivery WHERE queue > known.name) FROM known WHERE known.name IS NOT NULL
)
SELECT name FROM known WHERE name IS NOT NULL`;
}

/** Prints actions, warnings and errors, and no line of Nest's start. */
function loggerTo(stderr: CommandIo['stderr']): LoggerService {
  const print = (message: unknown): void => void stderr.write(`${String(message)}\n`);
  return {
    log: (message, context) => {
      if (context === 'WebhookConsole') print(message);
    },
    warn: print,
    error: print,
  };
}
