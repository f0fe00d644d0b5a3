import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { isWebhookError } from '../errors/webhook.error.js';
import { fromRequestLike } from '../request/incoming-webhook.js';
import { openRequest, type OpenedRequest, type RequestRules } from '../request/open-request.js';
import { WEBHOOK_ANSWERS } from '../request/webhook-answers.js';
import { createTokenVerifier } from '../token/token-verifier.js';
import { DEFAULT_MAX_JSON_MEMBERS, type WebhookProfile } from '../token/webhook-token.constants.js';
import {
  KEY_HELP,
  KEY_OPTIONS,
  readIssuerKey,
  readPort,
  runWithArguments,
  UsageError,
} from './arguments.js';
import type { CommandIo } from './command.interface.js';
import {
  call,
  type CallTarget,
  readTarget,
  TARGET_HELP,
  TARGET_OPTIONS,
  UnreachableError,
} from './http-call.js';

/** The output of `listen --help`. */
export const help = `Usage: nestjs-webhook-token listen --issuer <iss> [options]

Receives webhooks on this machine, on any path, and prints the verified events. A repeated event is
printed again. Stop it with Ctrl+C.

${KEY_HELP}
  --audience <aud>       audience of the receiver; repeatable
  --profile <name>       accepted wire format; repeatable
  --port <port>          default 4000; 0 for a free one
  --forward-to <url>     forward verified requests unchanged, and answer with the status of that URL
  --fail <status>x<n>    answer the first n attempts of each event with this status, to test retries:
                         503x2, or 503x2,500
${TARGET_HELP}
  --json                 print one line of JSON for each request: { time, method, status, verified, code,
                         error, event, id, issuer, attempt, data }

Exit code: 0 interrupted, 2 wrong usage, 3 the port cannot be used.
`;

const OPTIONS = {
  ...KEY_OPTIONS,
  ...TARGET_OPTIONS,
  audience: { type: 'string', multiple: true },
  profile: { type: 'string', multiple: true },
  port: { type: 'string', default: '4000' },
  'forward-to': { type: 'string' },
  fail: { type: 'string' },
  json: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const;

const UNUSABLE_PORT = 3;
/** The default of a receiver. */
const MAX_BODY_BYTES = 32 * 1024 * 1024;
/** Events whose attempts are counted. */
const MAX_COUNTED = 10_000;

/** Headers of one connection, which are not passed on. */
const HOP_HEADERS: ReadonlySet<string> = new Set([
  'host',
  'connection',
  'keep-alive',
  'transfer-encoding',
  'content-length',
  'expect',
]);

/**
 * Receives webhooks until `io.signal` is aborted.
 *
 * @returns 0 when interrupted, 2 for wrong usage, 3 if the port cannot be used
 */
export async function run(args: readonly string[], io: CommandIo): Promise<number> {
  const command = { name: 'listen', help, options: OPTIONS };
  return runWithArguments(command, args, io, async ({ values, positionals }) => {
    if (positionals.length > 0)
      throw new UsageError('Pass options only; the path does not matter.');
    const port = readPort(values.port);
    const { issuer, key } = await readIssuerKey(values, io.env, 'verify');
    const forwardTo = values['forward-to'];
    const listener = new Listener({
      rules: {
        tokens: createTokenVerifier({
          issuers: [{ issuer, keys: [key] }],
          audience: values.audience,
          profiles: values.profile as WebhookProfile[] | undefined,
        }),
        allowedEvents: new Map(),
        requireHash: true,
        maxBodyBytes: MAX_BODY_BYTES,
        maxJsonMembers: DEFAULT_MAX_JSON_MEMBERS,
      },
      failures: readFailures(values.fail),
      target: forwardTo === undefined ? undefined : readTarget(forwardTo, values),
      write: (entry) =>
        void io.stdout.write(values.json === true ? `${JSON.stringify(entry)}\n` : print(entry)),
    });
    return listen(listener, port, issuer, io);
  });
}

/** Parses `503x2,500` into the status of each attempt. */
function readFailures(fail: string | undefined): readonly number[] {
  return (fail === undefined ? [] : fail.split(',')).flatMap((part) => {
    const [, status, times = '1'] = /^([45]\d\d)(?:x(\d{1,3}))?$/.exec(part) ?? [];
    if (status === undefined) {
      throw new UsageError('--fail must list statuses from 400 to 599, such as 503x2.');
    }
    return Array<number>(Number(times)).fill(Number(status));
  });
}

async function listen(
  listener: Listener,
  port: number,
  issuer: string,
  { stderr, signal }: CommandIo,
): Promise<number> {
  const server = createServer((request, response) => void listener.handle(request, response));
  try {
    await once(server.listen(port, '127.0.0.1'), 'listening');
  } catch (error) {
    stderr.write(`Port ${port} cannot be used (${(error as NodeJS.ErrnoException).code}).\n`);
    return UNUSABLE_PORT;
  }
  const { port: bound } = server.address() as AddressInfo;
  stderr.write(`Listening on http://127.0.0.1:${bound} for events of ${issuer}\n`);
  if (signal?.aborted !== true) {
    await new Promise<void>((resolve) => {
      signal?.addEventListener('abort', () => resolve(), { once: true });
    });
  }
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  return 0;
}

/** A request as it is printed. */
interface ListenEntry {
  readonly time: string;
  readonly method: string;
  readonly status: number;
  readonly verified: boolean;
  /** Why the request was refused, from the answer table. */
  readonly code?: string;
  /** In words, or why the forwarded request got no answer. */
  readonly error?: string;
  readonly event?: string;
  readonly id?: string;
  readonly issuer?: string;
  /** 1 for the first request of the event. */
  readonly attempt?: number;
  readonly data?: unknown;
}

interface ListenerParts {
  readonly rules: RequestRules;
  readonly failures: readonly number[];
  readonly target: CallTarget | undefined;
  readonly write: (entry: ListenEntry) => void;
}

class Listener {
  private readonly attempts = new Map<string, number>();

  constructor(private readonly parts: ListenerParts) {}

  /** Answers a request; never rejects. */
  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = '', headers } = request;
    const base = { time: new Date().toISOString(), method };
    try {
      const body = await readBody(request);
      const opened = await openRequest(
        fromRequestLike({ method, headers: headers, body }),
        this.parts.rules,
      );
      const outcome = await this.answer(request, body, opened);
      this.parts.write({ ...base, verified: true, ...outcome });
      response.writeHead(outcome.status, { 'Cache-Control': 'no-store' }).end();
    } catch (error) {
      const code = isWebhookError(error) ? error.code : 'handler_failed';
      const { status } =
        WEBHOOK_ANSWERS[code as 'handler_failed'] ?? WEBHOOK_ANSWERS.handler_failed;
      const detail = isWebhookError(error)
        ? error.message
        : 'the connection closed before the whole request arrived';
      this.parts.write({ ...base, status, verified: false, code, error: detail });
      response.writeHead(status, { 'Webhook-Error': code, Connection: 'close' }).end();
    }
  }

  private async answer(
    request: IncomingMessage,
    body: Buffer,
    { token, payload }: OpenedRequest,
  ): Promise<Omit<ListenEntry, 'time' | 'method' | 'verified'>> {
    const { claims } = token;
    const id = claims.txn ?? claims.jti;
    const attempt = (this.attempts.get(id) ?? 0) + 1;
    if (this.attempts.size >= MAX_COUNTED) this.attempts.clear();
    this.attempts.set(id, attempt);
    const { event } = claims.webhook;
    const facts = { event, id, issuer: claims.iss, attempt, data: printableData(payload.data) };
    const failure = this.parts.failures[attempt - 1];
    if (failure !== undefined) return { ...facts, status: failure };
    const { target } = this.parts;
    if (target === undefined) return { ...facts, status: 204 };
    try {
      const { status } = await call(target, {
        method: request.method!,
        headers: passedOn(request),
        body: body.length === 0 ? undefined : body,
      });
      return { ...facts, status };
    } catch (error) {
      if (!(error instanceof UnreachableError)) throw error;
      return {
        ...facts,
        status: 502,
        error: `no answer from ${target.url.origin}: ${error.message}`,
      };
    }
  }
}

async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    // One byte more than allowed, so that it is refused as too large.
    if (size <= MAX_BODY_BYTES + chunk.length) chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function passedOn({ headers }: IncomingMessage): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers)
      .filter(([name]) => !HOP_HEADERS.has(name))
      .map(([name, value]) => [name, [value].flat().join(', ')]),
  );
}

function printableData(data: unknown): unknown {
  return Buffer.isBuffer(data) ? `<${data.length} bytes>` : data;
}

function print({
  time,
  method,
  status,
  verified,
  code,
  error,
  event,
  id,
  attempt,
  data,
}: ListenEntry): string {
  const clock = time.slice(11, 19);
  if (!verified) return `${clock} ${method} ${status} refused: ${code}: ${error}\n`;
  const again = attempt === 1 ? '' : ` (request ${attempt})`;
  const lines = [
    `${clock} ${method} ${status} ${event} id ${id}${again}`,
    ...(error === undefined ? [] : [`  ${error}`]),
    ...(data === undefined ? [] : [`  ${JSON.stringify(data)}`]),
  ];
  return `${lines.join('\n')}\n`;
}
