import type { Readable } from 'node:stream';
import {
  fromHeaders,
  type BodySource,
  type HeadersLike,
  type IncomingWebhook,
} from './incoming-webhook.js';

/** A request that came by another way than an HTTP route of this application. */
export interface WebhookRequestLike {
  readonly method: string;
  readonly headers: HeadersLike;
  /** The exact octets after transfer decoding; a text is taken as UTF-8. */
  readonly body?: Uint8Array | string | NodeJS.ReadableStream | undefined;
}

/** Sees such a request as a receiver does. */
export function fromRequestLike(request: WebhookRequestLike): IncomingWebhook {
  return {
    method: request.method.toUpperCase(),
    headers: fromHeaders(request.headers),
    body: bodySource(request.body),
  };
}

function bodySource(body: WebhookRequestLike['body']): BodySource {
  if (body === undefined) return { kind: 'bytes', bytes: Buffer.alloc(0) };
  if (typeof body === 'string') return { kind: 'bytes', bytes: Buffer.from(body) };
  if (body instanceof Uint8Array) return { kind: 'bytes', bytes: body };
  return { kind: 'stream', stream: body as Readable };
}
