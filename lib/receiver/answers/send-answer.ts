import type { IncomingMessage, ServerResponse } from 'node:http';
import { endsInDispute } from '../mount/last-request.js';
import type { WebhookAnswer } from './webhook-answer.js';

/** Bytes of a refused body that are worth reading, unparsed, to keep the connection (benchmark `forged`). */
const READ_AWAY = 65_536;

/**
 * Whether the connection must end with this answer: bytes of the body are still to come, and nobody is
 * going to read them. Left in place they would be taken for the sender's next request.
 */
export function closesConnection(request: IncomingMessage): boolean {
  if (request.httpVersionMajor !== 1) return false;
  return endsInDispute(request) || !(request.complete || isReadAway(request));
}

/**
 * Whether Node reads the body away once the answer is out. It does so with whatever nobody has begun to read, and here only
 * where it is a few packets whose end is told by a length. A sender that expects a 100 may take the answer
 * for leave to send nothing.
 */
function isReadAway(request: IncomingMessage): boolean {
  const { 'content-length': length, 'transfer-encoding': coding, expect } = request.headers;
  if (coding !== undefined || expect !== undefined || request.readableDidRead) return false;
  return Number(length) <= READ_AWAY;
}

/** Writes an answer straight to Node's response, past every layer that could change it. */
export function sendAnswer(
  request: IncomingMessage,
  response: ServerResponse,
  answer: WebhookAnswer,
  options: { readonly close: boolean },
): void {
  if (response.headersSent || response.destroyed) return;
  if (request.httpVersionMajor === 1 && (options.close || closesConnection(request))) {
    response.setHeader('Connection', 'close');
  }
  // All at once: a response keeps headers that are set one by one in a table of its own (benchmark `receive`).
  if (answer.problem === undefined || request.method === 'HEAD') {
    response.writeHead(answer.status, answer.headers).end();
    return;
  }
  // A text goes out in one write with the headers, where bytes would take a second one (benchmark `forged`).
  const body = JSON.stringify(answer.problem);
  const described = {
    'Content-Type': 'application/problem+json',
    'Content-Length': Buffer.byteLength(body),
  };
  response.writeHead(answer.status, { ...answer.headers, ...described }).end(body);
}
