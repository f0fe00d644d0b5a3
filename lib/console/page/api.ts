import type { ConsoleErrorCode, ConsoleProblem } from '../console-api.js';

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

/** Reads something. */
export function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  const set = Object.entries(query).filter((pair): pair is [string, string] => Boolean(pair[1]));
  const search = set.length === 0 ? '' : `?${new URLSearchParams(set)}`;
  return call(`${path}${search}`, { signal: signal ?? null });
}

/** Changes something. The header is one that a form of another site cannot send. */
export function act<T>(
  method: 'POST' | 'PATCH' | 'DELETE',
  path: string,
  body?: object,
): Promise<T> {
  return call(path, {
    method,
    headers: { 'Webhook-Console': '1', 'Content-Type': 'application/json' },
    body: method === 'DELETE' ? null : JSON.stringify(body ?? {}),
  });
}

async function call<T>(path: string, init: RequestInit): Promise<T> {
  const response = await fetch(`./api/${path}`, {
    ...init,
    credentials: 'same-origin',
    redirect: 'error',
  }).catch((error: unknown) => {
    if (init.signal?.aborted) throw error;
    throw new ApiError('The server did not answer.', 0);
  });
  const text = await response.text();
  if (response.ok) return (text === '' ? undefined : JSON.parse(text)) as T;
  const problem = parseProblem(text);
  throw new ApiError(
    problem?.detail ?? `The server answered with ${response.status}.`,
    response.status,
    problem?.code,
    problem?.errors,
  );
}

/** Guards of the application answer in their own format. */
function parseProblem(text: string): ConsoleProblem | undefined {
  try {
    const parsed: unknown = JSON.parse(text);
    const isProblem = typeof parsed === 'object' && parsed !== null && 'code' in parsed;
    return isProblem ? (parsed as ConsoleProblem) : undefined;
  } catch {
    return undefined;
  }
}
