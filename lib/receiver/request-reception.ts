import type { IncomingMessage } from 'node:http';
import type { WebhookReception } from './replay/webhook-reception.js';

/** An adapter's request: Node's own (Express), or one with Node's as `raw` (Fastify). */
export type AdapterRequest = IncomingMessage | { readonly raw: IncomingMessage };

/** A property instead of a WeakMap, whose values V8 keeps alive until a full GC (benchmark `receive`). */
const RECEPTION = Symbol('nestjs-webhook-token:reception');

type WithReception = IncomingMessage & { [RECEPTION]?: WebhookReception };

/** Node's request behind an adapter's. */
export function nodeRequest(request: AdapterRequest): IncomingMessage {
  return 'raw' in request ? request.raw : request;
}

/** Attaches the event that the guard admitted, for the interceptor and the parameter decorators. */
export function attachReception(request: AdapterRequest, reception: WebhookReception): void {
  (nodeRequest(request) as WithReception)[RECEPTION] = reception;
}

/** The event that the guard admitted on this request, if it did. */
export function receptionOf(request: AdapterRequest): WebhookReception | undefined {
  return (nodeRequest(request) as WithReception)[RECEPTION];
}
