import { WebhookPayloadError, WebhookTokenError, isWebhookError } from '../errors/webhook.error.js';
import { matchesEvent } from '../token/event-name.js';
import { after, type MaybePromise } from '../token/maybe-promise.js';
import { type PayloadRule, checkPayload, payloadRule } from '../token/payload-rule.js';
import { rulesOf, type TokenVerifier } from '../token/token-verifier.js';
import type {
  VerifiedWebhookToken,
  WebhookClaim,
  WebhookTokenClaims,
} from '../token/webhook-claims.interface.js';
import { verifyBearerToken } from './bearer-token.js';
import { checkDeclaredBody, readBody } from './body-reader.js';
import { startFingerprint } from './content-fingerprint.js';
import type { BodySpool } from './body-spool.js';
import { MemoryBody, NO_BODY, type RequestBody } from './spooled-body.js';
import type { IncomingWebhook } from './incoming-webhook.js';
import { isJsonType, parseJsonPayload } from './json-payload.js';

/** What a request is held against: the part of a receiver that needs neither Nest nor a store. */
export interface RequestRules {
  readonly tokens: TokenVerifier;
  /** Patterns by issuer; an issuer that is not in it may send every event. */
  readonly allowedEvents: { get(issuer: string): readonly string[] | undefined };
  readonly requireHash: boolean;
  readonly maxBodyBytes: number;
  /** Members of a JSON body, at all levels. */
  readonly maxJsonMembers: number;
  /** For large bodies; absent, they are kept in memory. Whoever gets one from it removes it. */
  readonly spool?: BodySpool | undefined;
}

/** A request whose token and body hold. */
export interface OpenedRequest {
  readonly method: 'HEAD' | 'POST';
  readonly token: VerifiedWebhookToken;
  readonly payload: RequestPayload;
}

/** A request whose token holds, and whose body is still to come. */
interface OpenedHead extends Pick<OpenedRequest, 'method' | 'token'> {
  readonly rule: PayloadRule;
  /** Whether the keys are those the token was verified by. */
  readonly isTrusted: () => boolean;
}

/** What a request carries. */
interface RequestPayload {
  /** `undefined` also for octets in a file: they are read when somebody asks for them. */
  readonly data: unknown;
  readonly body: RequestBody;
  /** Whether the body is the data, octet for octet, and lies in a file. */
  readonly spooled?: { readonly fingerprint: string };
  readonly bodyVerified: boolean;
  readonly contentType: string | undefined;
}

/**
 * Verifies a request but for its replay: method, token, event, then the body, in this order.
 *
 * @throws {@link WebhookTokenError}, {@link WebhookPayloadError}
 */
export function openRequest(
  incoming: IncomingWebhook,
  rules: RequestRules,
): MaybePromise<OpenedRequest> {
  const method = webhookMethod(incoming.method);
  const keys = rulesOf(rules.tokens)?.keys;
  const trusted = keys?.latest?.();
  return after(verifyBearerToken(incoming.headers, rules.tokens), (token) => {
    const { claims, profile } = token;
    checkAllowed(rules, claims);
    const rule = payloadRule(claims.webhook, method, { requireHash: rules.requireHash, profile });
    if (rule.kind === 'no-body') {
      return { method, token, payload: inlinePayload(claims.webhook.data, true) };
    }
    return openBody(incoming, rules, {
      method,
      token,
      rule,
      isTrusted: () => keys?.latest?.() === trusted,
    });
  });
}

async function openBody(
  incoming: IncomingWebhook,
  rules: RequestRules,
  { method, token, rule, isTrusted }: OpenedHead,
): Promise<OpenedRequest> {
  const payload = await readPayload(incoming, rules, rule, token.claims.webhook);
  try {
    // A body may take its time, and a key be revoked meanwhile: nobody keeps it alive by sending slowly.
    if (!isTrusted()) await verifyBearerToken(incoming.headers, rules.tokens);
  } catch (error) {
    payload.body.remove();
    throw error;
  }
  return { method, token, payload };
}

async function readPayload(
  incoming: IncomingWebhook,
  rules: RequestRules,
  rule: PayloadRule,
  webhook: WebhookClaim,
): Promise<RequestPayload> {
  checkDeclaredBody(incoming, rule, rules.maxBodyBytes);
  const contentType = incoming.headers.get('content-type');
  const isJson = isJsonType(contentType);
  const { body, computed, mark } = await readBody(incoming.body, {
    rule,
    maxBodyBytes: rules.maxBodyBytes,
    spool: rules.spool,
    declared: Number(incoming.headers.get('content-length') ?? 0),
    ...(!isJson && { mark: () => startFingerprint(webhook.event) }),
  });
  try {
    const { source, bodyVerified } = checkPayload(webhook, rule, body.length, computed);
    if (source !== 'body') {
      body.remove();
      return inlinePayload(source === 'data' ? webhook.data : undefined, bodyVerified);
    }
    const received = { body, bodyVerified, contentType };
    if (isJson) return { ...received, ...(await parsed(body, contentType!, rules.maxJsonMembers)) };
    if (mark !== undefined) return { ...received, data: undefined, spooled: { fingerprint: mark } };
    return { ...received, data: body.readNow() };
  } catch (error) {
    body.remove();
    throw error;
  }
}

/** What is parsed is in memory, and its text with it: the file is not needed any more. */
async function parsed(
  body: RequestBody,
  contentType: string,
  maxMembers: number,
): Promise<Pick<RequestPayload, 'body' | 'data'>> {
  const bytes = await body.read();
  const data = parseJsonPayload(bytes, contentType, maxMembers);
  body.remove();
  return { body: new MemoryBody(bytes), data };
}

function inlinePayload(data: WebhookClaim['data'], bodyVerified: boolean): RequestPayload {
  const contentType = data === undefined ? undefined : 'application/json';
  return { data, body: NO_BODY, bodyVerified, contentType };
}

function webhookMethod(method: string): 'HEAD' | 'POST' {
  if (method === 'HEAD' || method === 'POST') return method;
  throw new WebhookPayloadError('method_not_allowed', 'a webhook is sent by HEAD or POST');
}

function checkAllowed(rules: RequestRules, claims: WebhookTokenClaims): void {
  const patterns = rules.allowedEvents.get(claims.iss);
  if (patterns?.some((pattern) => matchesEvent(pattern, claims.webhook.event)) === false) {
    throw new WebhookTokenError('event_forbidden', 'the issuer may not send this event', {
      claim: 'webhook.event',
    });
  }
}

/** Refusals before the signature is known to hold. */
const UNAUTHENTICATED: ReadonlySet<string> = new Set([
  'missing_token',
  'malformed_authorization',
  'token_too_large',
  'invalid_token',
  'bad_signature',
  'unknown_key',
  'wrong_issuer',
  'keys_unavailable',
  'method_not_allowed',
]);

/**
 * Whether the signature held of a request that was refused, so that its sender holds a key.
 *
 * @param error - what {@link openRequest}, or the replay store behind it, threw
 */
export function isAuthenticatedRefusal(error: unknown): boolean {
  if (!isWebhookError(error)) return false;
  // A claim, or the methods of a wire format, are named only after the signature holds.
  const { claim, methods } = error as { readonly claim?: string; readonly methods?: unknown };
  return claim !== undefined || methods !== undefined || !UNAUTHENTICATED.has(error.code);
}
