import { defer, type Observable } from 'rxjs';
import { explainRequest } from '../explain/explain-request.js';
import { parseStandardWebhooksKey, signedContent } from '../keys/standard-webhooks-key.js';
import { isEnvelope } from '../request/sender-payload.js';
import { fromRequestLike } from '../request/request-like.js';
import { matchesEvent } from '../token/event-name.js';
import { decodeBase64url } from '../token/decoding.js';
import { isObject, parseJson } from '../token/json.js';
import { isWebhookKey, type KeyInput } from '../token/keys/key-material.js';
import { isJsonType } from '../token/payload.js';
import { createTokenVerifier } from '../token/verifier-options.js';
import type { WebhookTokenClaims } from '../token/webhook-claims.interface.js';
import {
  DEFAULT_MAX_JSON_MEMBERS,
  STANDARD_WEBHOOKS,
  WEBHOOK_PROFILES,
} from '../token/webhook-token.constants.js';

/** A captured request. Its token is decoded; {@link isSignedWith} verifies it. */
export interface SentWebhook {
  readonly method: 'HEAD' | 'POST';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | undefined;
  readonly token: string;
  readonly claims: WebhookTokenClaims;
  /** The event's name. */
  readonly event: string;
  /** The event's id: `txn`, else `jti`. */
  readonly id: string;
  /**
   * Which attempt to send this event to this URL it belongs to; 1 for the first. A HEAD and the POST that replaces it belong
   * to one attempt.
   */
  readonly attempt: number;
  /** The inline data, the parsed JSON body or the data in its envelope, or any other body as a Buffer. */
  readonly data: unknown;
  /**
   * Verifies the request as a receiver with this key would: signature, claims and the digest of the body.
   *
   * @param key - a shared secret, or a public key with its `alg`; of a Standard Webhook without a token, `whsec_…` or `whpk_…`
   * @throws {@link WebhookConfigurationError} if the key cannot verify
   */
  isSignedWith(key: KeyInput): Promise<boolean>;
}

/** The members of a request's configuration that the transport reads. */
export interface TransportRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly headers?: unknown;
  readonly data?: unknown;
  /** One for all requests of an attempt. */
  readonly signal?: object | undefined;
}

/** What the publisher gets for a request, as from axios. */
export interface TransportResponse {
  readonly status: number;
  readonly statusText: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly data: undefined;
  readonly config: TransportRequest;
}

export interface TransportAnswer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

/** A connection that fails, by the code of Node's error. */
export type NetworkFailure =
  'ECONNREFUSED' | 'ECONNRESET' | 'ETIMEDOUT' | 'ENOTFOUND' | 'CERT_HAS_EXPIRED';

/** A status, an answer, or a failure without an answer. */
export type TransportReply = number | TransportAnswer | NetworkFailure | Error;

/** Returns the reply to a request; it may throw, as for a failed connection. */
export type TransportResponder = (webhook: SentWebhook) => TransportReply | Promise<TransportReply>;

/** Selects requests: by the event's name or pattern, its id, and the beginning of the URL. */
export interface SentWebhookFilter {
  readonly event?: string | undefined;
  readonly id?: string | undefined;
  readonly url?: string | undefined;
}

/**
 * Replaces `HttpService` in a test: no request leaves the process, and all are captured.
 *
 * It has only the method that the publisher uses, `request`.
 */
export class InMemoryWebhookTransport {
  /** Every request, in order. */
  readonly sent: SentWebhook[] = [];
  private readonly scripts = new Map<string, readonly TransportReply[]>();
  /** Numbers of attempts, by their signals. */
  private readonly attempts = new WeakMap<object, number>();

  /** @param respond - a reply, or a function that returns one; default 204 */
  constructor(private respond: TransportReply | TransportResponder = 204) {}

  /** Sets the reply to further requests, except where {@link script} has one. */
  respondWith(respond: TransportReply | TransportResponder): void {
    this.respond = respond;
  }

  /**
   * Sets the replies of an endpoint, one for each attempt of an event; the last one repeats.
   *
   * ```ts
   * transport.script('https://crm.example', 503, 'ECONNRESET', 204);
   * ```
   *
   * @param url - the beginning of the endpoint's URL; of several, the longest applies
   */
  script(url: string, ...replies: readonly [TransportReply, ...TransportReply[]]): void {
    this.scripts.set(url, replies);
  }

  /** The captured requests that match, in order. */
  filter(wanted: SentWebhookFilter | ((webhook: SentWebhook) => boolean)): readonly SentWebhook[] {
    if (typeof wanted === 'function') return this.sent.filter(wanted);
    const { event, id, url } = wanted;
    return this.sent.filter(
      (webhook) =>
        (event === undefined || matchesEvent(event, webhook.event)) &&
        (id === undefined || webhook.id === id) &&
        (url === undefined || webhook.url.startsWith(url)),
    );
  }

  /**
   * The only captured request that matches.
   *
   * @param wanted - default: every request
   * @throws Error if there is none, or more than one; it lists what was sent
   */
  single(wanted: SentWebhookFilter | ((webhook: SentWebhook) => boolean) = {}): SentWebhook {
    const found = this.filter(wanted);
    if (found.length === 1) return found[0]!;
    const list = this.sent
      .map(
        ({ method, url, event, attempt }) => `\n  ${event} ${method} ${url} (attempt ${attempt})`,
      )
      .join('');
    throw new Error(
      `Expected one matching request, found ${found.length}; sent: ${list === '' ? 'nothing' : list}`,
    );
  }

  /** Clears the captured requests; scripts stay, and count attempts from 1 again. */
  clear(): void {
    this.sent.length = 0;
  }

  /** Called by the publisher. */
  request(config: TransportRequest): Observable<TransportResponse> {
    return defer(async () => {
      const webhook = this.capture(config);
      this.sent.push(webhook);
      const scripted = this.scriptOf(webhook.url);
      const respond = scripted?.[Math.min(webhook.attempt, scripted.length) - 1] ?? this.respond;
      const reply = typeof respond === 'function' ? await respond(webhook) : respond;
      if (reply instanceof Error) throw reply;
      if (typeof reply === 'string') {
        throw Object.assign(new Error(`simulated: ${reply}`), { code: reply });
      }
      const { status, headers = {} } = typeof reply === 'number' ? { status: reply } : reply;
      return { status, statusText: '', headers, data: undefined, config };
    });
  }

  private scriptOf(url: string): readonly TransportReply[] | undefined {
    const [longest] = [...this.scripts.keys()]
      .filter((prefix) => url.startsWith(prefix))
      .sort((a, b) => b.length - a.length);
    return longest === undefined ? undefined : this.scripts.get(longest);
  }

  private capture({ method, url, headers, data, signal }: TransportRequest): SentWebhook {
    const sent = headers as Record<string, string>;
    const bearer = sent['Authorization']?.slice('Bearer '.length) ?? '';
    const body = data as Buffer | undefined;
    const isJson = isJsonType(sent['Content-Type']);
    const content = body && isJson ? parseJson(body.toString()) : body;
    // A Standard Webhook may have other credentials of its endpoint there.
    const signed = readClaims(bearer);
    const token = signed === undefined ? '' : bearer;
    const claims = signed ?? standardClaims(sent, content);
    const id = claims.txn ?? claims.jti;
    const request = { method: method as 'HEAD' | 'POST', url: url!, headers: sent, body };
    return {
      ...request,
      token,
      claims,
      event: claims.webhook.event,
      id,
      attempt: this.attemptOf(id, url!, signal),
      data: method === 'HEAD' ? claims.webhook.data : dataOf(content, claims),
      isSignedWith: async (key) =>
        token === '' ? isStandard(request, key) : isAccepted(request, claims, key),
    };
  }

  private attemptOf(id: string, url: string, signal: object = {}): number {
    const earlier = this.filter((one) => one.id === id && one.url === url);
    const next = Math.max(0, ...earlier.map(({ attempt }) => attempt)) + 1;
    const number = this.attempts.get(signal) ?? next;
    this.attempts.set(signal, number);
    return number;
  }
}

/** A Standard Webhook in the form of a token's claims. */
function standardClaims(
  { 'webhook-id': id, 'webhook-timestamp': time }: Readonly<Record<string, string>>,
  content: unknown,
): WebhookTokenClaims {
  const envelope = isEnvelope(content);
  const iat = Number(time);
  const webhook = { event: envelope ? content.type : '', envelope };
  return { iss: STANDARD_WEBHOOKS, jti: id!, iat, exp: iat, webhook };
}

function dataOf(content: unknown, { webhook }: WebhookTokenClaims): unknown {
  return webhook.envelope === true && isEnvelope(content) ? content.data : content;
}

function isStandard(
  { headers, body }: Pick<SentWebhook, 'headers' | 'body'>,
  secret: KeyInput,
): boolean {
  const { key } = parseStandardWebhooksKey(secret);
  const signatures = headers['webhook-signature']!.split(' ').map((one) => one.split(',')[1]!);
  const signed = signedContent(headers['webhook-id']!, headers['webhook-timestamp']!, body!);
  return key?.holdsFor(signed, signatures) === true;
}

/** Verifies at the time of the token, since the clock of the test may have moved on. */
async function isAccepted(
  request: Pick<SentWebhook, 'method' | 'headers' | 'body'>,
  { iss, aud, iat }: WebhookTokenClaims,
  key: KeyInput,
): Promise<boolean> {
  const tokens = createTokenVerifier({
    issuers: [{ issuer: iss, keys: [isWebhookKey(key) ? key : { key }] }],
    profiles: WEBHOOK_PROFILES,
    audience: aud,
    now: () => iat * 1_000,
  });
  const { verdict } = await explainRequest(fromRequestLike(request), {
    tokens,
    requireHash: true,
    maxBodyBytes: Infinity,
    maxJsonMembers: DEFAULT_MAX_JSON_MEMBERS,
  });
  return verdict === 'accepted';
}

/** The claims of a token that is not verified; `undefined` if it is no webhook token. */
export function readClaims(token: string): WebhookTokenClaims | undefined {
  const claims = parseJson(decodeBase64url(token.split('.')[1] ?? '')?.toString() ?? '');
  const { webhook } = isObject(claims) ? claims : {};
  const isToken = isObject(webhook) && typeof webhook['event'] === 'string';
  return isToken ? (claims as WebhookTokenClaims) : undefined;
}
