import type { IncomingMessage, ServerResponse } from 'node:http';
import { endsInDispute } from '../mount/last-request.js';
import type { WebhookAnswer } from './webhook-answer.js';

/**
 * Whether the connection must end with this answer: bytes of the body are still to come, and nobody is
 * going to read them. Left in place they would be taken for the sender's next request.
 */
export function closesConnection(request: IncomingMessage): boolean {
  if (request.httpVersionMajor !== 1) return false;
  return !request.complete || endsInDispute(request);
}

/** Writes an answer straight to Node's response, past every layer that could change it. */
export function sendAnswer(
  request: IncomingMessage,
  response: ServerResponse,
  answer: WebhookAnswer,
  options: { readonly close: boolean },
): void {
  if (response.headersSent || response.destroyed) return;
  for (const [name, value] of Object.entries(answer.headers)) response.setHeader(name, value);
  if (request.httpVersionMajor === 1 && (options.close || closesConnection(request))) {
    response.setHeader('Connection', 'close');
  }
  response.statusCode = answer.status;
  if (answer.problem === undefined || request.method === 'HEAD') {
    response.end();
    return;
  }
  const body = Buffer.from(JSON.stringify(answer.problem));
  response.setHeader('Content-Type', 'application/problem+json');
  response.setHeader('Content-Length', body.length);
  response.end(body);
}
