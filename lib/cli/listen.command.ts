import {
  createServer,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  type ServerResponse,
} from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { isWebhookError } from '../errors/webhook.error.js';
import { closesConnection, fromNodeRequest, sendAnswer } from '../receiver/node-http.js';
import { openRequest } from '../request/open-request.js';
import type { RequestRules, VerifiedRequest } from '../request/webhook-scheme.js';
import {
  refuse,
  WEBHOOK_ANSWERS,
  type WebhookAnswer,
  type WebhookSituation,
} from '../request/webhook-answers.js';
import { readApplicationAnswer } from './application-answer.js';
import { interruption, KEY_HELP, printableJson, readPort, UsageError } from './arguments.js';
import { readRules, RECEIVER_OPTIONS } from './receiver-rules.js';
import type { Arguments, CommandIo } from './command.interface.js';
import {
  call,
  type CallAnswer,
  type CallTarget,
  readTarget,
  TARGET_HELP,
  TARGET_OPTIONS,
  UnreachableError,
} from './http-call.js';

export const help = `Usage: nestjs-webhook-token listen --issuer <iss> [options]

Receives webhooks on this machine, on any path, and prints the verified events. A repeated event is
printed again. Stop it with Ctrl+C.

${KEY_HELP}
  --audience <aud>       audience of the receiver; repeatable
  --profile <name>       accepted wire format; repeatable
  --port <port>          default 4000; 0 for a free one
  --forward-to <url>     forward verified requests unchanged, and answer as that URL does
  --fail <status>x<n>    answer the first n attempts of each event with this status, to test retries:
                         503x2, or 503x2,500
${TARGET_HELP}
  --json                 print one line of JSON for each request: { time, method, status, verified, code,
                         error, event, id, issuer, attempt, data }

Exit code: 0 interrupted, 2 wrong usage, 3 the port cannot be used.
`;

export const options = {
  ...RECEIVER_OPTIONS,
  ...TARGET_OPTIONS,
  port: { type: 'string', default: '4000' },
  'forward-to': { type: 'string' },
  fail: { type: 'string' },
  json: { type: 'boolean' },
} as const;

type Given = Arguments<typeof options>;

const UNUSABLE_PORT = 3;
/** Events whose attempts are counted. */
const MAX_COUNTED = 10_000;

/** Headers of the application's answer that are passed back. */
const ANSWER_HEADERS = [
  'allow',
  'content-type',
  'retry-after',
  'webhook-duplicate',
  'webhook-error',
  'www-authenticate',
];

/** Receives webhooks until `io.signal` is aborted. */
export async function run({ values, positionals }: Given, io: CommandIo): Promise<number> {
  if (positionals.length > 0) throw new UsageError('Pass options only; the path does not matter.');
  const port = readPort(values.port);
  const rules = await readRules(values, io.env);
  const forwardTo = values['forward-to'];
  const failures = readFailures(values.fail);
  const target = forwardTo === undefined ? undefined : readTarget(forwardTo, values);
  const write = (entry: ListenEntry): void =>
    void io.stdout.write(values.json === true ? `${printableJson(entry)}\n` : print(entry));
  const listener = new Listener(rules, failures, target, write);
  return listen(listener, port, rules.issuer, io);
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
  io: CommandIo,
): Promise<number> {
  const server = createServer((request, response) => void listener.handle(request, response));
  try {
    await once(server.listen(port, '127.0.0.1'), 'listening');
  } catch (error) {
    io.stderr.write(`Port ${port} cannot be used (${(error as NodeJS.ErrnoException).code}).\n`);
    return UNUSABLE_PORT;
  }
  const { port: bound } = server.address() as AddressInfo;
  io.stderr.write(`Listening on http://127.0.0.1:${bound} for events of ${issuer}\n`);
  await interruption(io);
  // A forward in flight would keep the process until its timeout.
  listener.close();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  return 0;
}

interface Outcome {
  readonly status: number;
  /** Why the request was refused: from the answer table, or of the application that it was forwarded to. */
  readonly code?: string | undefined;
  /** In words, or why the forwarded request got no answer. */
  readonly error?: string | undefined;
}

interface ReceivedEvent {
  readonly event: string;
  readonly id: string;
  readonly issuer: string;
  /** 1 for the first request of the event. */
  readonly attempt: number;
  readonly data?: unknown;
}

interface ListenEntry extends Outcome, Partial<ReceivedEvent> {
  readonly time: string;
  readonly method: string;
  readonly verified: boolean;
}

class Listener {
  private readonly attempts = new Map<string, number>();
  private readonly closing = new AbortController();

  /** @param failures - the statuses of the first attempts of each event */
  constructor(
    private readonly rules: RequestRules,
    private readonly failures: readonly number[],
    private readonly target: CallTarget | undefined,
    private readonly write: (entry: ListenEntry) => void,
  ) {}

  /** Answers a request; never rejects. */
  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = '' } = request;
    const base = { time: new Date().toISOString(), method };
    try {
      const incoming = fromNodeRequest(request, { kind: 'stream', stream: request });
      const opened = await openRequest(incoming, this.rules);
      const event = this.count(opened);
      const { entry, answer } = await this.answer(request, opened.body.readNow(), event.attempt);
      this.write({ ...base, verified: true, ...event, ...entry });
      const passedBack = answer === undefined ? {} : headersOf(answer);
      if (closesConnection(request, false)) response.setHeader('Connection', 'close');
      response.writeHead(entry.status, { ...passedBack, 'Cache-Control': 'no-store' });
      response.end(method === 'HEAD' ? undefined : answer?.body);
    } catch (error) {
      const answer = refusalOf(error);
      const { code, detail } = answer.problem!;
      this.write({ ...base, status: answer.status, verified: false, code, error: detail });
      sendAnswer(request, response, answer, { close: true });
    }
  }

  close(): void {
    this.closing.abort();
  }

  private count({ claims, data }: VerifiedRequest): ReceivedEvent {
    const id = claims.txn ?? claims.jti;
    const attempt = (this.attempts.get(id) ?? 0) + 1;
    if (this.attempts.size >= MAX_COUNTED) this.attempts.clear();
    this.attempts.set(id, attempt);
    const { event } = claims.webhook;
    return { event, id, issuer: claims.iss, attempt, data: printableData(data) };
  }

  private async answer(
    request: IncomingMessage,
    body: Buffer,
    attempt: number,
  ): Promise<{ entry: Outcome; answer?: CallAnswer }> {
    const failure = this.failures[attempt - 1];
    if (failure !== undefined) return { entry: { status: failure } };
    const { target } = this;
    if (target === undefined) return { entry: { status: 204 } };
    try {
      const forwarded = {
        method: request.method!,
        headers: request.headersDistinct as Record<string, string[]>,
        body: body.length === 0 ? undefined : body,
      };
      const answer = await call(target, forwarded, this.closing.signal);
      const { status } = answer;
      if (status < 300) return { entry: { status }, answer };
      const { code, detail: error } = readApplicationAnswer(answer);
      return { entry: { status, code, error }, answer };
    } catch (error) {
      if (!(error instanceof UnreachableError)) throw error;
      const reason = `no answer from ${target.url.origin}: ${error.message}`;
      return { entry: { status: 502, error: reason } };
    }
  }
}

function headersOf({ headers }: CallAnswer): OutgoingHttpHeaders {
  return Object.fromEntries(
    ANSWER_HEADERS.filter((name) => headers[name] !== undefined).map((name) => [
      name,
      headers[name],
    ]),
  );
}

function refusalOf(error: unknown): WebhookAnswer {
  const code = isWebhookError(error) ? error.code : 'handler_failed';
  const situation = Object.hasOwn(WEBHOOK_ANSWERS, code) ? code : 'handler_failed';
  const { message, methods } = error as { message: string; methods?: readonly string[] };
  return refuse(situation as WebhookSituation, { detail: message, allow: methods?.join(', ') });
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
  const why = [code, error].filter((part) => part !== undefined).join(': ');
  const again = attempt === 1 ? '' : ` (request ${attempt})`;
  const lines = [
    `${clock} ${method} ${status} ${event} id ${id}${again}`,
    ...(why === '' ? [] : [`  ${why}`]),
    ...(data === undefined ? [] : [`  ${printableJson(data)}`]),
  ];
  return `${lines.join('\n')}\n`;
}
