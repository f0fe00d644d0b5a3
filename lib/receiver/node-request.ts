import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { WebhookReception } from './reception.js';

/** An adapter's request: Node's own (Express), or one with Node's as `raw` (Fastify). */
export type AdapterRequest = IncomingMessage | { readonly raw: IncomingMessage };

/** Node's request behind an adapter's. */
export function nodeRequest(request: AdapterRequest): IncomingMessage {
  return 'raw' in request ? request.raw : request;
}

/** Node's response behind an adapter's. */
export function nodeResponse(response: ServerResponse | { raw: ServerResponse }): ServerResponse {
  return 'raw' in response ? response.raw : response;
}

/** The path of a request target, which may be an absolute URI (RFC 9112, section 3.2.2). */
export function pathOfTarget(target: string): string {
  return target.replace(/^https?:\/\/[^/?#]*/i, '').replace(/[?#].*$/s, '');
}

/**
 * The path of a request, for logs. On a route of the application it is the route's pattern, since a parameter of the path may
 * be anything, even a secret; a mounted path has no parameters.
 */
export function pathOfRequest(request: AdapterRequest): string {
  const { route, routeOptions } = request as {
    readonly route?: { readonly path?: unknown };
    readonly routeOptions?: { readonly url?: unknown };
  };
  const pattern = route?.path ?? routeOptions?.url;
  if (typeof pattern === 'string') return pattern;
  const { originalUrl, url = '' } = nodeRequest(request) as { originalUrl?: string; url?: string };
  return (originalUrl ?? url).replace(/[?#].*$/s, '');
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

/** The headers by which parsers recognise a body and its type. */
const BODY_HEADERS = ['content-type', 'content-length', 'transfer-encoding'] as const;

/** Holds the removed headers; `null` once they are restored. */
const ASIDE = Symbol('nestjs-webhook-token:aside');

type Shieldable = IncomingMessage & { [ASIDE]?: IncomingHttpHeaders | null };

/** Hides the body of a request from the application's parsers, so that its exact bytes reach the guard unread. */
export function shieldBody(request: Shieldable): void {
  if (wasShielded(request)) return;
  const aside: IncomingHttpHeaders = {};
  for (const name of BODY_HEADERS) {
    const value = request.headers[name];
    if (value === undefined) continue;
    aside[name] = value;
    delete request.headers[name];
  }
  request[ASIDE] = aside;
}

/** Restores the headers. */
export function unshieldBody(request: Shieldable): void {
  const aside = request[ASIDE];
  if (!aside) return;
  request[ASIDE] = null;
  Object.assign(request.headers, aside);
}

/** Whether the body was hidden from the application's parsers. */
export function wasShielded(request: Shieldable): boolean {
  return request[ASIDE] !== undefined;
}

/** The last request of each connection that closes after its answer. */
const lastRequests = new WeakMap<Socket, IncomingMessage>();

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
