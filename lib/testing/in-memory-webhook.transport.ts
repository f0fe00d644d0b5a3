import type { AxiosRequestConfig, AxiosResponse } from 'axios';
import { defer, type Observable } from 'rxjs';
import { decodeBase64url } from '../token/json/base64url.js';
import { parseJson } from '../token/json/strict-json.js';
import type { WebhookTokenClaims } from '../token/webhook-claims.interface.js';

/** A request that would have left, with its token read (and not verified). */
export interface SentWebhook {
  readonly method: 'HEAD' | 'POST';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | undefined;
  readonly token: string;
  readonly claims: WebhookTokenClaims;
  /** The event's name. */
  readonly event: string;
  /** The inline data, or the JSON body, or another body as a Buffer. */
  readonly data: unknown;
}

/** What a destination answers. */
export interface TransportAnswer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

/** Decides what a request is answered; a throw is a connection that failed. */
export type TransportResponder = (
  webhook: SentWebhook,
) => number | TransportAnswer | Promise<number | TransportAnswer>;

/**
 * Takes the place of `HttpService` in a test: nothing leaves the process, and everything is kept.
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
 * It only has what the publisher uses of HttpService, the method `request`.
 */
export class InMemoryWebhookTransport {
  /** Every request, in the order in which they were made. */
  readonly sent: SentWebhook[] = [];

  /** @param respond - a status, or a function that decides; default 204 */
  constructor(private respond: number | TransportAnswer | TransportResponder = 204) {}

  /** Answers from now on with this. */
  respondWith(respond: number | TransportAnswer | TransportResponder): void {
    this.respond = respond;
  }

  /** Forgets what was sent. */
  clear(): void {
    this.sent.length = 0;
  }

  /** What the publisher calls. */
  request<T = unknown>(config: AxiosRequestConfig): Observable<AxiosResponse<T>> {
    return defer(async () => {
      const webhook = readWebhook(config);
      this.sent.push(webhook);
      const answer =
        typeof this.respond === 'function' ? await this.respond(webhook) : this.respond;
      const { status, headers = {} } = typeof answer === 'number' ? { status: answer } : answer;
      return { status, statusText: '', headers, data: undefined, config } as AxiosResponse;
    });
  }
}

function readWebhook({ method, url, headers, data }: AxiosRequestConfig): SentWebhook {
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
