import type { ConsoleErrorCode, ConsoleProblem } from '../console-api.js';
import { parseJson } from './format.js';
import { STRINGS } from './strings.js';

/** Longer than the server takes for the largest action, 1,000 redeliveries. */
const LIMIT_MS = 120_000;

/** A call that the server answered with an error, or did not answer (status 0). */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly code?: ConsoleErrorCode,
    readonly errors: ConsoleProblem['errors'] = [],
  ) {
    super(message);
  }
}

/** Parameters of a call; members without a value are left out. */
export type Query = Readonly<Record<string, string | undefined>>;

/** As the end of a URL: with `?`, unless it has no member. */
export function searchOf(query: Query): string {
  const set = Object.entries(query).filter((pair): pair is [string, string] => Boolean(pair[1]));
  return set.length === 0 ? '' : `?${new URLSearchParams(set)}`;
}

export function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return call(`${path}${searchOf(query)}`, { signal: signal ?? null });
}

let running = 0;
let untilDeletion = new AbortController();

/** Whether a change has no answer yet, or the page has not yet followed it. */
export function isChanging(): boolean {
  return running > 0;
}

/** Aborted when the next deletion starts. */
export function nextDeletion(): AbortSignal {
  return untilDeletion.signal;
}

/** Changes something. The header is one that a form of another site cannot send. */
export function act<T>(
  method: 'POST' | 'PATCH' | 'DELETE',
  path: string,
  body?: object,
): Promise<T> {
  const headers = { 'Webhook-Console': '1' };
  const json = { ...headers, 'Content-Type': 'application/json' };
  running++;
  if (method === 'DELETE') {
    untilDeletion.abort();
    untilDeletion = new AbortController();
  }
  return call<T>(path, {
    method,
    // Fastify refuses an empty body with a type.
    ...(method === 'DELETE' ? { headers } : { headers: json, body: JSON.stringify(body ?? {}) }),
  }).finally(() => setTimeout(() => running--));
}

async function call<T>(path: string, init: RequestInit): Promise<T> {
  const limit = AbortSignal.timeout(LIMIT_MS);
  const signal = init.signal ? AbortSignal.any([init.signal, limit]) : limit;
  const options = { ...init, signal, credentials: 'same-origin', redirect: 'manual' } as const;
  const [response, text] = await fetch(`./api/${path}`, options)
    .then(async (answer) => [answer, await answer.text()] as const)
    .catch((error: unknown) => {
      if (init.signal?.aborted) throw error;
      throw new ApiError(limit.aborted ? STRINGS.tookTooLong : STRINGS.noAnswer, 0);
    });
  const isJson = response.headers.get('Content-Type')?.includes('json') === true;
  // A login page of the application, or the way to it.
  const isLogin = response.type === 'opaqueredirect' || (response.ok && text !== '' && !isJson);
  if (isLogin) throw new ApiError(STRINGS.signInAgain, 401);
  if (response.ok) return (text === '' ? undefined : JSON.parse(text)) as T;
  const problem = parseProblem(text);
  if (problem === undefined && response.status === 401) {
    throw new ApiError(STRINGS.signInAgain, 401);
  }
  throw new ApiError(
    problem?.detail ?? STRINGS.answered(response.status),
    response.status,
    problem?.code,
    problem?.errors,
  );
}

/** Guards of the application answer in their own format. */
function parseProblem(text: string): ConsoleProblem | undefined {
  const parsed = parseJson(text);
  const isProblem = typeof parsed === 'object' && parsed !== null && 'code' in parsed;
  return isProblem ? (parsed as ConsoleProblem) : undefined;
}
