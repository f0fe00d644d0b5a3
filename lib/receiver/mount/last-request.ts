import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** Connections that end with an answer that is still being made. */
const ending = new WeakSet<Socket>();

/**
 * Whether it is in dispute where the request ends: a HEAD that declares a body. Senders follow the
 * specification's own example and declare a length without sending anything; Node's parser then takes
 * the next request for that body, and what follows, at an offset a stranger may have chosen, for a request.
 */
export function endsInDispute(request: IncomingMessage): boolean {
  if (request.httpVersionMajor !== 1 || request.method !== 'HEAD') return false;
  const { 'content-length': length, 'transfer-encoding': coding } = request.headers;
  return coding !== undefined || (length !== undefined && length !== '0');
}

/**
 * Makes a request the last one of its connection, whoever answers it.
 *
 * The header alone is not enough: Node goes on parsing what has arrived already.
 *
 * @see RFC 9112, section 9.6
 */
export function makeLastRequest(request: IncomingMessage, response: ServerResponse): void {
  ending.add(request.socket);
  response.setHeader('Connection', 'close');
}

/** Whether a request stands behind the last one of its connection, so that it must not be processed. */
export function comesAfterLastRequest(request: IncomingMessage): boolean {
  return ending.has(request.socket);
}
