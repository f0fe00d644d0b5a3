import type { IncomingMessage } from 'node:http';
import type { WebhookReception } from './replay/webhook-reception.js';

/** An adapter's request: Node's own, or one that keeps it as `raw`. */
export type AdapterRequest = IncomingMessage | { readonly raw: IncomingMessage };

/**
 * A property, not a WeakMap beside the request: the garbage collector takes the values of one for alive, and with
 * them each event's claims and data (benchmark `receive`).
 */
const RECEPTION = Symbol('nestjs-webhook-token:reception');

type WithReception = IncomingMessage & { [RECEPTION]?: WebhookReception };

/** Node's request behind an adapter's. */
export function nodeRequest(request: AdapterRequest): IncomingMessage {
  return 'raw' in request ? request.raw : request;
}

/** Keeps what the guard let in, for the interceptor and the parameter decorators behind it. */
export function keepReception(request: AdapterRequest, reception: WebhookReception): void {
  (nodeRequest(request) as WithReception)[RECEPTION] = reception;
}

/** What the guard let in on this request, if it ran. */
export function receptionOf(request: AdapterRequest): WebhookReception | undefined {
  return (nodeRequest(request) as WithReception)[RECEPTION];
}
