import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** Connections that close after the current answer. */
const ending = new WeakSet<Socket>();

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
  ending.add(request.socket);
  response.setHeader('Connection', 'close');
}

/** Whether a request follows the last one of its connection, so that it must not be processed. */
export function isAfterConnectionEnd(request: IncomingMessage): boolean {
  return ending.has(request.socket);
}
