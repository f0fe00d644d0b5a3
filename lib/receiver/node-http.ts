import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { BodySource, IncomingWebhook, RequestHeaders } from '../request/webhook-scheme.js';
import { contentOf, type WebhookAnswer } from '../request/webhook-answers.js';
import type { WebhookReception } from './reception.js';

/** An adapter's request: Node's own (Express), or one with Node's as `raw` (Fastify). */
export type AdapterRequest = IncomingMessage | { readonly raw: IncomingMessage };

/** The head of a request, which one that was fetched has too. */
export type RequestHead = Pick<IncomingMessage, 'method' | 'url' | 'headers' | 'rawHeaders'>;

/** Node's request behind an adapter's. */
export function nodeRequest<T extends RequestHead>(request: T | { readonly raw: T }): T {
  return 'raw' in request ? request.raw : request;
}

export function nodeResponse(response: ServerResponse | { raw: ServerResponse }): ServerResponse {
  return 'raw' in response ? response.raw : response;
}

/**
 * The path of a request, for logs. On a route of the application it is the route's pattern, since a parameter of the path may
 * be anything, even a secret; a mounted path has no parameters but those of the application's global prefix.
 */
export function pathOfRequest(request: RequestHead | { readonly raw: RequestHead }): string {
  const { route, routeOptions } = request as {
    readonly route?: { readonly path?: unknown };
    readonly routeOptions?: { readonly url?: unknown };
  };
  const pattern = route?.path ?? routeOptions?.url;
  if (typeof pattern === 'string') return pattern;
  const { originalUrl, url = '' } = nodeRequest(request) as { originalUrl?: string; url?: string };
  return (originalUrl ?? url).replace(/[?#].*$/s, '');
}

/** The request in the form that verification takes. The body shield must have restored its headers. */
export function fromNodeRequest(request: RequestHead, body: BodySource): IncomingWebhook {
  // Express and middleware may shorten `url`.
  const { originalUrl: target = request.url } = request as { originalUrl?: string };
  return { method: request.method ?? '', target, headers: nodeHeaders(request), body };
}

function nodeHeaders(request: RequestHead): RequestHeaders {
  return {
    get: (name) => {
      const value = request.headers[name];
      return Array.isArray(value) ? value[0] : value;
    },
    // `headers` keeps only the first Authorization header.
    all: (name) => {
      const rawHeaders = rawHeadersOf(request);
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

/** Names and values in turn. Requests that a serverless adapter makes may have them only in `headers`. */
export function rawHeadersOf({ headers, rawHeaders }: RequestHead): readonly string[] {
  if (rawHeaders.length > 0) return rawHeaders;
  // Their Content-Length may be a number.
  const entries: [string, string | number | string[] | undefined][] = Object.entries(headers);
  return entries.flatMap(([name, value = []]) =>
    [value].flat().flatMap((one) => [name, String(one)]),
  );
}

/**
 * The unread stream; if something has read it, the copy that Nest keeps with `rawBody: true`, or a platform for its functions.
 *
 * @returns `undefined` if the bytes are lost
 */
export function bodyOf(request: AdapterRequest): BodySource | undefined {
  const node = nodeRequest(request);
  if (!node.readableDidRead && !node.readableEnded) return { kind: 'stream', stream: node };
  const { rawBody } = request as { readonly rawBody?: unknown };
  return Buffer.isBuffer(rawBody) ? { kind: 'bytes', bytes: rawBody } : undefined;
}

/** A property instead of a WeakMap, whose values V8 keeps alive until a full GC. */
const RECEPTION = Symbol('nestjs-webhook-token:reception');

type WithReception = IncomingMessage & { [RECEPTION]?: WebhookReception };

/** Attaches the event that the guard let in, for the interceptor, the filter and the parameter decorators. */
export function attachReception(request: AdapterRequest, reception: WebhookReception): void {
  (nodeRequest(request) as WithReception)[RECEPTION] = reception;
}

/** The event that the guard let in on this request, if it did. */
export function receptionOf(request: AdapterRequest): WebhookReception | undefined {
  return (nodeRequest(request) as WithReception)[RECEPTION];
}

/**
 * Whether it is ambiguous where the request ends: a HEAD that declares a body.
 *
 * Senders follow the specification's example and declare a length without sending a body. Node's parser then reads the next request
 * as that body, and continues at an offset that an attacker may have chosen (request smuggling).
 */
export function hasAmbiguousLength(request: IncomingMessage): boolean {
  if (request.httpVersionMajor !== 1 || request.method !== 'HEAD') return false;
  const { 'content-length': length, 'transfer-encoding': coding } = request.headers;
  return coding !== undefined || (length !== undefined && length !== '0');
}

/** The last request of each connection that closes after its answer. */
const lastRequests = new WeakMap<Socket, IncomingMessage>();

/**
 * Makes a request the last one of its connection, whichever layer answers it.
 *
 * The header alone is not enough: Node still parses what has already arrived.
 *
 * @see RFC 9112, section 9.6
 */
export function endConnectionAfter(request: IncomingMessage, response: ServerResponse): void {
  lastRequests.set(request.socket, request);
  response.setHeader('Connection', 'close');
}

/** Whether a request follows the last one of its connection, so that it must not be processed. */
export function isAfterConnectionEnd(request: IncomingMessage): boolean {
  const last = lastRequests.get(request.socket);
  return last !== undefined && last !== request;
}

/** A refused body of up to so many bytes is read and dropped, to keep the connection open (benchmark `forged`). */
const READ_AWAY = 65_536;

/**
 * Whether the answer carries `Connection: close`: at shutdown, and if unread bytes of the body would be parsed as the next request.
 * HTTP/2 has no such header.
 */
export function closesConnection(request: IncomingMessage, isClosing: boolean): boolean {
  if (request.httpVersionMajor !== 1) return false;
  return isClosing || hasAmbiguousLength(request) || !(request.complete || isReadAway(request));
}

/**
 * Whether Node drains the body after the answer, if there is one. It drains any body that was not started; this allows it for a short
 * one with a known length. A sender that expects a 100 may not send its body at all.
 */
function isReadAway(request: IncomingMessage): boolean {
  const { 'content-length': length, 'transfer-encoding': coding, expect } = request.headers;
  if (coding !== undefined || expect !== undefined) return false;
  // Without either header there is no body (RFC 9112, section 6.3).
  if (length === undefined) return true;
  return !request.readableDidRead && Number(length) <= READ_AWAY;
}

/** Writes an answer to Node's response directly, past every layer that could change it. */
export function sendAnswer(
  request: IncomingMessage,
  response: ServerResponse,
  answer: WebhookAnswer,
  options: { readonly close: boolean },
): void {
  if (response.headersSent || response.destroyed) return;
  if (closesConnection(request, options.close)) response.setHeader('Connection', 'close');
  // All at once: headers that are set one by one go through a table of the response (benchmark `receive`).
  const content = request.method === 'HEAD' ? undefined : contentOf(answer);
  if (content === undefined) {
    response.writeHead(answer.status, answer.headers).end();
    return;
  }
  const { type, body } = content;
  const described = { 'Content-Type': type, 'Content-Length': Buffer.byteLength(body) };
  // A string is written together with the headers; a Buffer would take a second write (benchmark `forged`).
  response.writeHead(answer.status, { ...answer.headers, ...described }).end(body);
}
