import type { IncomingMessage } from 'node:http';
import type { WebhookReception } from '../replay/webhook-reception.js';

/** An adapter's request: Node's own, or one that keeps it as `raw`. */
export type AdapterRequest = IncomingMessage | { readonly raw: IncomingMessage };

const receptions = new WeakMap<IncomingMessage, WebhookReception>();

/** Node's request behind an adapter's. */
export function nodeRequest(request: AdapterRequest): IncomingMessage {
  return 'raw' in request ? request.raw : request;
}

/** Keeps what the guard let in, for the interceptor and the parameter decorators behind it. */
export function keepReception(request: AdapterRequest, reception: WebhookReception): void {
  receptions.set(nodeRequest(request), reception);
}

/** What the guard let in on this request, if it ran. */
export function receptionOf(request: AdapterRequest): WebhookReception | undefined {
  return receptions.get(nodeRequest(request));
}
