import { WebhookPayloadError, WebhookTokenError, isWebhookError } from '../errors/webhook.error.js';
import { matchesEvent } from '../token/event-name.js';
import { type PayloadRule, checkPayload, payloadRule } from '../token/payload-rule.js';
import type { TokenVerifier } from '../token/token-verifier.js';
import type {
  VerifiedWebhookToken,
  WebhookClaim,
  WebhookTokenClaims,
} from '../token/webhook-claims.interface.js';
import { MAX_TOKEN_BYTES } from '../token/webhook-token.constants.js';
import { readBearerToken } from './bearer-token.js';
import { checkContentType, checkDeclaredBody, declaresBody, readBody } from './body-reader.js';
import type { BodySpool } from './body-spool.js';
import { MemoryBody, NO_BODY, type RequestBody } from './request-body.js';
import type { IncomingWebhook } from './incoming-webhook.js';
import { isJsonType, parseJsonPayload } from './json-payload.js';

/** The rules of a receiver that {@link openRequest} checks; they need neither Nest nor a store. */
export interface RequestRules {
  readonly tokens: TokenVerifier;
  /** Event patterns by issuer; `undefined` for an issuer that may send every event. */
  readonly allowedEvents: { get(issuer: string): readonly string[] | undefined };
  /** Content types by issuer; an issuer that is not listed may send a body of any type. */
  readonly allowedContentTypes?: { get(issuer: string): readonly string[] | undefined };
  readonly requireHash: boolean;
  readonly maxBodyBytes: number;
  /** Members of a JSON body, at all levels. */
  readonly maxJsonMembers: number;
  /** Stores large bodies; without it they stay in memory. The caller of {@link openRequest} removes the body. */
  readonly spool?: BodySpool | undefined;
}

/** A request whose token and body are verified. */
export interface OpenedRequest {
  readonly method: 'HEAD' | 'POST';
  readonly token: VerifiedWebhookToken;
  readonly payload: RequestPayload;
}

/** The event data of a request and where it comes from. */
interface RequestPayload {
  /** Also `undefined` for bytes in a file, which are read on demand. */
  readonly data: unknown;
  readonly body: RequestBody;
  /** Whether the data are the bytes of a body in a file. */
  readonly isSpooled: boolean;
  /**
   * Digest of a body that no token could carry: bytes, or JSON above {@link MAX_TOKEN_BYTES}. It identifies the content; other
   * JSON is identified by its value, since it may also arrive in a token.
   */
  readonly digest?: string | undefined;
  readonly bodyVerified: boolean;
  readonly contentType: string | undefined;
}

/**
 * Verifies a request in this order: method, token, event, body. The replay check is left to the caller.
 *
 * @throws {@link WebhookTokenError}, {@link WebhookPayloadError}
 */
export async function openRequest(
  incoming: IncomingWebhook,
  rules: RequestRules,
): Promise<OpenedRequest> {
  const method = requireMethod(incoming.method);
  const keys = rules.tokens.keys;
  const keysBefore = keys.latest?.();
  const compact = readBearerToken(incoming.headers);
  const token = await rules.tokens.verify(compact);
  const { claims, profile } = token;
  requireAllowedEvent(rules, claims);
  const rule = payloadRule(claims.webhook, method, { requireHash: rules.requireHash, profile });
  if (rule.kind === 'no-body') {
    return { method, token, payload: inlinePayload(claims.webhook.data, true) };
  }
  const payload = await readPayload(incoming, rules, rule, claims);
  try {
    // A key may be revoked while the body arrives; a slow sender must not extend its life.
    if (keys.latest?.() !== keysBefore) await rules.tokens.verify(compact);
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
  { iss, webhook }: WebhookTokenClaims,
): Promise<RequestPayload> {
  checkDeclaredBody(incoming, rule, rules.maxBodyBytes);
  const contentTypes = rules.allowedContentTypes?.get(iss);
  const isDeclared = contentTypes !== undefined && declaresBody(incoming);
  if (isDeclared) checkContentType(incoming, contentTypes);
  const contentType = incoming.headers.get('content-type');
  const isJson = isJsonType(contentType);
  const { body, computed } = await readBody(incoming.body, {
    rule,
    maxBodyBytes: rules.maxBodyBytes,
    spool: rules.spool,
    declared: Number(incoming.headers.get('content-length') ?? 0),
  });
  try {
    const { source, bodyVerified } = checkPayload(webhook, rule, body.length, computed);
    if (source !== 'body') {
      body.remove();
      return inlinePayload(source === 'data' ? webhook.data : undefined, bodyVerified);
    }
    if (contentTypes !== undefined && !isDeclared) checkContentType(incoming, contentTypes);
    const digest = isJson && body.length <= MAX_TOKEN_BYTES ? undefined : computed[0];
    if (!isJson) {
      const isSpooled = !(body instanceof MemoryBody);
      const data = isSpooled ? undefined : body.readNow();
      return { data, body, isSpooled, digest, bodyVerified, contentType };
    }
    // Parsed data are in memory anyway, so the body is kept there too and its file is removed.
    const kept = body instanceof MemoryBody ? body : new MemoryBody(await body.read());
    const data = parseJsonPayload(kept.readNow(), contentType!, rules.maxJsonMembers);
    if (kept !== body) body.remove();
    return { data, body: kept, isSpooled: false, digest, bodyVerified, contentType };
  } catch (error) {
    body.remove();
    throw error;
  }
}

function inlinePayload(data: WebhookClaim['data'], bodyVerified: boolean): RequestPayload {
  const contentType = data === undefined ? undefined : 'application/json';
  return { data, body: NO_BODY, isSpooled: false, bodyVerified, contentType };
}

function requireMethod(method: string): 'HEAD' | 'POST' {
  if (method === 'HEAD' || method === 'POST') return method;
  throw new WebhookPayloadError('method_not_allowed', 'send a webhook by HEAD or POST');
}

function requireAllowedEvent(rules: RequestRules, claims: WebhookTokenClaims): void {
  const patterns = rules.allowedEvents.get(claims.iss);
  if (patterns?.some((pattern) => matchesEvent(pattern, claims.webhook.event)) === false) {
    throw new WebhookTokenError('event_forbidden', 'the issuer may not send this event', {
      claim: 'webhook.event',
    });
  }
}

/** Refusals before the signature is verified; without a receiver, none is. */
const UNAUTHENTICATED: ReadonlySet<string> = new Set([
  'invalid_configuration',
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
 * Reports whether a refused request had a valid signature, so that its sender has a key.
 *
 * @param error - what {@link openRequest} or the replay store threw
 */
export function isAuthenticatedRefusal(error: unknown): boolean {
  if (!isWebhookError(error)) return false;
  // Errors name a claim or the allowed methods only after the signature is verified.
  const { claim, methods } = error as { readonly claim?: string; readonly methods?: unknown };
  return claim !== undefined || methods !== undefined || !UNAUTHENTICATED.has(error.code);
}
