import type { WebhookAnswerCode } from '../request/webhook-answers.js';
import { type ApplicationAnswer, readApplicationAnswer } from './application-answer.js';
import {
  jsonOf,
  KEY_HELP,
  printResult,
  readContent,
  UsageError,
  writeOwnFile,
} from './arguments.js';
import { capturedJson, readCapturedRequest } from './captured-request.js';
import type { Arguments, CommandIo } from './command.interface.js';
import {
  call,
  type CallAnswer,
  type CallRequest,
  readTarget,
  TARGET_HELP,
  TARGET_OPTIONS,
  UnreachableError,
} from './http-call.js';
import { withoutMark } from './text-encoding.js';
import { signArguments, SIGN_HELP, SIGN_OPTIONS } from './sign-options.js';

export const help = `Usage: nestjs-webhook-token send <url> <event> [data] --issuer <iss> [options]
       nestjs-webhook-token send [url] --replay <file>

Signs an event, sends it, and explains the answer. The data is JSON, @file, or - for standard input.

${KEY_HELP}
${SIGN_HELP}
  --record <file>        write the request to a file; it contains the token
  --replay <file>        send a recorded request again, byte for byte
${TARGET_HELP}
  --json                 print JSON

Exit code: 0 acknowledged, 1 refused, 2 wrong usage, 3 no answer.
`;

export const options = {
  ...SIGN_OPTIONS,
  ...TARGET_OPTIONS,
  record: { type: 'string' },
  replay: { type: 'string' },
  json: { type: 'boolean' },
} as const;

type Given = Arguments<typeof options>;

const REFUSED = 1;
const UNREACHABLE = 3;

export async function run({ values, positionals }: Given, io: CommandIo): Promise<number> {
  const [url, event, data, ...more] = positionals;
  if (more.length > 0)
    throw new UsageError('Pass a URL, an event, and its data as one quoted argument.');
  const recorded = values.replay === undefined ? undefined : await readRecorded(values.replay);
  if (recorded !== undefined && event !== undefined) {
    throw new UsageError('--replay sends a recorded event; pass no event.');
  }
  const target = readTarget(url ?? recorded?.url, values);
  const request = recorded?.request ?? (await signArguments(event, data, values, io));
  if (values.record !== undefined) await record(values.record, target.url, request);
  let answer: CallAnswer;
  try {
    answer = await call(target, request);
  } catch (error) {
    if (!(error instanceof UnreachableError)) throw error;
    io.stderr.write(`${target.url.origin} did not answer. ${error.message}\n`);
    return UNREACHABLE;
  }
  const verdict = judge(request.method, answer);
  const facts = [target.url, request, answer, verdict] as const;
  printResult(io, values.json, report(...facts), print(...facts));
  return verdict.acknowledged ? 0 : REFUSED;
}

interface Recorded {
  readonly url: string | undefined;
  readonly request: CallRequest;
}

async function readRecorded(file: string): Promise<Recorded> {
  const bytes = withoutMark(await readContent(file));
  const request = readCapturedRequest(bytes);
  const json = bytes.toString().trimStart();
  const { url } = (json.startsWith('{') ? jsonOf(json, file) : {}) as { url?: unknown };
  // HEAD has no body, and an empty POST has a length of 0 either way.
  const body = request.body.length === 0 ? undefined : request.body;
  return { url: typeof url === 'string' ? url : undefined, request: { ...request, body } };
}

/** The token in the file is valid for minutes. */
async function record(file: string, url: URL, request: CallRequest): Promise<void> {
  const { method, body } = request;
  const headers = request.headers as Record<string, string>;
  const content = { url: url.href, ...capturedJson({ method, headers, body }) };
  await writeOwnFile(file, `${JSON.stringify(content, undefined, 2)}\n`, 'w');
}

interface Verdict extends Partial<ApplicationAnswer> {
  readonly acknowledged: boolean;
  readonly advice?: string | undefined;
}

/** What to check, by code of the answer table. */
const ADVICE: Readonly<Partial<Record<WebhookAnswerCode, string>>> = {
  bad_signature:
    'The receiver has a different key, or trusts only another issuer: compare the secrets and the issuers.',
  unknown_key: 'The receiver has no valid key with this --kid: compare its keys for this issuer.',
  wrong_issuer: 'The receiver does not trust this --issuer: add it to receiver.issuers.',
  wrong_audience: 'Pass the audience of the receiver as --audience.',
  token_expired: 'Sign a new token, and compare the clocks of both machines.',
  token_not_yet_valid: 'Compare the clocks of both machines.',
  token_too_old: 'The receiver allows only shorter lifetimes: pass a smaller --lifetime.',
  replayed: 'The id was used before with other content: pass another --id.',
  event_forbidden: 'This issuer may not send this event: see receiver.issuers[].events.',
  event_unhandled: 'No handler matches the event: add one, or correct the name of the event.',
  in_progress: 'The same event is being handled now: send it again later.',
  handler_failed: 'A handler threw an error: see the log of the receiver.',
  invalid_payload: 'The data is not valid: compare it with the DTO or schema of the handler.',
  hash_mismatch: 'A proxy or middleware changed the body, or the recorded file was edited.',
  missing_token: 'A proxy or gateway removed the Authorization header.',
};

function judge(method: string, answer: CallAnswer): Verdict {
  const { status } = answer;
  const acknowledged =
    method === 'HEAD' ? status === 202 || status === 204 : status >= 200 && status < 300;
  if (acknowledged) return { acknowledged };
  const { code, detail } = readApplicationAnswer(answer);
  const advice =
    (code === undefined ? undefined : ADVICE[code as WebhookAnswerCode]) ??
    adviceOnStatus(method, status);
  return { acknowledged, code, detail, advice };
}

function adviceOnStatus(method: string, status: number): string | undefined {
  if (status === 404)
    return 'There is no receiver at this path: check the path and the global prefix.';
  if (status >= 300 && status < 400) return 'Redirects are not followed: send to the final URL.';
  if (method !== 'HEAD') return undefined;
  if (status === 405 || status === 501)
    return 'The receiver may not support HEAD: pass --method POST.';
  return status === 200
    ? 'Only 202 or 204 acknowledges a HEAD, because any GET route answers it with 200: check the path.'
    : undefined;
}

function report(url: URL, request: CallRequest, answer: CallAnswer, verdict: Verdict): unknown {
  const { status, durationMs } = answer;
  const bytes = request.body?.length ?? 0;
  return { method: request.method, url: url.href, bytes, status, durationMs, ...verdict };
}

function print(url: URL, request: CallRequest, answer: CallAnswer, verdict: Verdict): string {
  const { acknowledged, code, detail, advice } = verdict;
  const isCopy = answer.headers['webhook-duplicate'] === 'true';
  const outcome = acknowledged
    ? `acknowledged${isCopy ? ', as a duplicate' : ''}`
    : `refused${code === undefined ? '' : `: ${code}`}`;
  const lines = [
    `${request.method} ${url.href}`,
    ...('authorization' in request.headers ? ['Authorization: Bearer <token>'] : []),
    ...(request.body === undefined ? [] : [`${request.body.length} bytes`]),
    '',
    `${answer.status} ${outcome} (${answer.durationMs} ms)`,
    ...(detail === undefined ? [] : [`  ${detail}`]),
    ...(advice === undefined ? [] : [`  ${advice}`]),
  ];
  return `${lines.join('\n')}\n`;
}
