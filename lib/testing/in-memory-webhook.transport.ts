import { defer, type Observable } from 'rxjs';
import { decodeBase64url } from '../token/json/base64url.js';
import { parseJson } from '../token/json/strict-json.js';
import type { WebhookTokenClaims } from '../token/webhook-claims.interface.js';

/** A captured request. Its token is decoded, not verified. */
export interface SentWebhook {
  readonly method: 'HEAD' | 'POST';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | undefined;
  readonly token: string;
  readonly claims: WebhookTokenClaims;
  /** The event's name. */
  readonly event: string;
  /** The inline data, the parsed JSON body, or any other body as a Buffer. */
  readonly data: unknown;
}

/** The members of a request's configuration that the transport reads. */
export interface TransportRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly headers?: unknown;
  readonly data?: unknown;
}

/** What the publisher gets for a request, as from axios. */
export interface TransportResponse {
  readonly status: number;
  readonly statusText: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly data: undefined;
  readonly config: TransportRequest;
}

/** The answer of a destination. */
export interface TransportAnswer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

/** Returns the answer to a request; throw to simulate a failed connection. */
export type TransportResponder = (
  webhook: SentWebhook,
) => number | TransportAnswer | Promise<number | TransportAnswer>;

/**
 * Replaces `HttpService` in a test: no request leaves the process, and all are captured.
 *
 * ```ts
 * const transport = new InMemoryWebhookTransport();
 * const testing = await Test.createTestingModule({ imports: [AppModule] })
 *   .overrideProvider(HttpService)
 *   .useValue(transport)
 *   .compile();
 * // …
 * expect(transport.sent.map(({ event }) => event)).toEqual(['order.created']);
 * ```
 *
 * It has only the method that the publisher uses, `request`.
 */
export class InMemoryWebhookTransport {
  /** Every request, in order. */
  readonly sent: SentWebhook[] = [];

  /** @param respond - a status, an answer, or a function that returns one; default 204 */
  constructor(private respond: number | TransportAnswer | TransportResponder = 204) {}

  /** Sets the answer to further requests. */
  respondWith(respond: number | TransportAnswer | TransportResponder): void {
    this.respond = respond;
  }

  /** Clears the captured requests. */
  clear(): void {
    this.sent.length = 0;
  }

  /** Called by the publisher. */
  request(config: TransportRequest): Observable<TransportResponse> {
    return defer(async () => {
      const webhook = readWebhook(config);
      this.sent.push(webhook);
      const answer =
        typeof this.respond === 'function' ? await this.respond(webhook) : this.respond;
      const { status, headers = {} } = typeof answer === 'number' ? { status: answer } : answer;
      return { status, statusText: '', headers, data: undefined, config };
    });
  }
}

function readWebhook({ method, url, headers, data }: TransportRequest): SentWebhook {
  const sent = headers as Record<string, string>;
  const token = sent['Authorization']!.slice('Bearer '.length);
  const claims = readClaims(token);
  const body = data as Buffer | undefined;
  return {
    method: method as 'HEAD' | 'POST',
    url: url!,
    headers: sent,
    body,
    token,
    claims,
    event: claims.webhook.event,
    data: method === 'HEAD' ? claims.webhook.data : body && readBody(body, sent['Content-Type']),
  };
}

function readClaims(token: string): WebhookTokenClaims {
  const payload = decodeBase64url(token.split('.')[1] ?? '');
  return parseJson(payload?.toString() ?? '') as WebhookTokenClaims;
}

function readBody(body: Buffer, contentType: string | undefined): unknown {
  return /^application\/(?:json|\S+\+json)\b/.test(contentType ?? '')
    ? parseJson(body.toString())
    : body;
}
