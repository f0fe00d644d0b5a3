import type { Readable } from 'node:stream';
import type { BodySource, IncomingWebhook, RequestHeaders } from './webhook-scheme.js';

/** Headers of any framework: a plain object, or the Fetch API's `Headers`. */
type HeadersLike =
  | Readonly<Record<string, string | readonly string[] | undefined>>
  | { get(name: string): string | null; forEach?: unknown };

/** Wraps the headers of a request that did not arrive through this application's HTTP server. */
function fromHeaders(headers: HeadersLike): RequestHeaders {
  if (typeof (headers as { get?: unknown }).get === 'function') {
    const fetched = headers as { get(name: string): string | null };
    const get = (name: string): string | undefined => fetched.get(name) ?? undefined;
    return { get, all: (name) => [get(name)].filter((value) => value !== undefined) };
  }
  const values = new Map<string, string[]>();
  for (const [name, value] of Object.entries(headers as Record<string, string | string[]>)) {
    if (value === undefined) continue;
    const key = name.toLowerCase();
    values.set(key, [...(values.get(key) ?? []), ...(Array.isArray(value) ? value : [value])]);
  }
  return { get: (name) => values.get(name)?.[0], all: (name) => values.get(name) ?? [] };
}

/** A request that did not arrive through an HTTP route of this application: from a queue, a serverless event or a test. */
export interface WebhookRequestLike {
  readonly method: string;
  /** The path and query, or the whole URL; only Microsoft Graph asks for its query. */
  readonly url?: string | undefined;
  readonly headers: HeadersLike;
  /** The exact bytes after transfer decoding; a string is encoded as UTF-8. */
  readonly body?: Uint8Array | string | NodeJS.ReadableStream | undefined;
}

export function fromRequestLike(request: WebhookRequestLike): IncomingWebhook {
  return {
    method: request.method.toUpperCase(),
    target: request.url,
    headers: fromHeaders(request.headers),
    body: bodySource(request.body),
  };
}

function bodySource(body: WebhookRequestLike['body']): BodySource {
  if (body === undefined) return { kind: 'bytes', bytes: Buffer.alloc(0) };
  if (typeof body === 'string') return { kind: 'bytes', bytes: Buffer.from(body) };
  if (body instanceof Uint8Array) return { kind: 'bytes', bytes: body };
  return { kind: 'stream', stream: body as Readable };
}
