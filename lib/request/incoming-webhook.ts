import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';

/** Access to headers that also shows repeated ones, which Node's `headers` hides. */
export interface RequestHeaders {
  /** The first value. */
  get(name: string): string | undefined;
  /** Every value, in order of arrival. */
  all(name: string): readonly string[];
}

/** The source of the body's exact bytes. */
export type BodySource =
  | { readonly kind: 'stream'; readonly stream: Readable }
  | { readonly kind: 'bytes'; readonly bytes: Uint8Array }
  /** Something else has read the stream and kept nothing. */
  | { readonly kind: 'consumed' };

/** A request before verification, independent of the HTTP adapter. */
export interface IncomingWebhook {
  readonly method: string;
  readonly headers: RequestHeaders;
  readonly body: BodySource;
}

/** Headers of any framework: a plain object, or the Fetch API's `Headers`. */
type HeadersLike =
  | Readonly<Record<string, string | readonly string[] | undefined>>
  | { get(name: string): string | null; forEach?: unknown };

/** Wraps a Node request. The body shield must have restored its headers. */
export function fromNodeRequest(request: IncomingMessage, body: BodySource): IncomingWebhook {
  return { method: request.method ?? '', headers: nodeHeaders(request), body };
}

function nodeHeaders(request: IncomingMessage): RequestHeaders {
  return {
    get: (name) => {
      const value = request.headers[name];
      return Array.isArray(value) ? value[0] : value;
    },
    // `headers` keeps only the first Authorization header.
    all: (name) => {
      const { rawHeaders } = request;
      const values: string[] = [];
      for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
        const key = rawHeaders[i]!;
        if (key.length === name.length && key.toLowerCase() === name)
          values.push(rawHeaders[i + 1]!);
      }
      return values;
    },
  };
}

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
  readonly headers: HeadersLike;
  /** The exact bytes after transfer decoding; a string is encoded as UTF-8. */
  readonly body?: Uint8Array | string | NodeJS.ReadableStream | undefined;
}

/** Wraps such a request. */
export function fromRequestLike(request: WebhookRequestLike): IncomingWebhook {
  return {
    method: request.method.toUpperCase(),
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
