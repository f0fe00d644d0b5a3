import type { IncomingMessage, ServerResponse } from 'node:http';
import { hasAmbiguousLength } from '../mount/last-request.js';
import type { WebhookAnswer } from './webhook-answer.js';

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
  if (answer.problem === undefined || request.method === 'HEAD') {
    response.writeHead(answer.status, answer.headers).end();
    return;
  }
  // A string is written together with the headers; a Buffer would take a second write (benchmark `forged`).
  const body = JSON.stringify(answer.problem);
  const described = {
    'Content-Type': 'application/problem+json',
    'Content-Length': Buffer.byteLength(body),
  };
  response.writeHead(answer.status, { ...answer.headers, ...described }).end(body);
}
