import { WebhookPayloadError, WebhookTokenError, isWebhookError } from '../errors/webhook.error.js';
import { matchesEvent } from '../token/event-name.js';
import { rulesOf } from '../token/profiles/profile.js';
import type { WebhookClaim, WebhookTokenClaims } from '../token/webhook-claims.interface.js';
import { readSeconds } from '../token/validate-claims.js';
import { readReceipt } from '../token/webhook-receipt.js';
import {
  DEFAULT_PROFILE,
  MAX_TOKEN_BYTES,
  type WebhookProfile,
} from '../token/webhook-token.constants.js';
import {
  checkContentType,
  checkDeclaredBody,
  declaresBody,
  MemoryBody,
  NO_BODY,
  readBody,
} from './body.js';
import type {
  IncomingWebhook,
  RequestHeaders,
  RequestRules,
  VerifiedRequest,
  WebhookScheme,
} from './webhook-scheme.js';
import { envelopeDigest, isEnvelope } from './sender-payload.js';
import { isJsonType, parseJsonPayload, type PayloadRule, checkPayload } from '../token/payload.js';

/** A webhook token in the Authorization header, in any of the receiver's profiles. */
export const webhookToken: WebhookScheme = {
  name: DEFAULT_PROFILE,
  hasCredentials: (headers) => headers.all('authorization').some((value) => SCHEME.test(value)),
  verify: openRequest,
  isAuthenticated: isAuthenticatedRefusal,

  claims({ method, headers }) {
    try {
      return readReceipt(readBearerToken(headers), { method, bodyBytes: 0 });
    } catch {
      return {};
    }
  },
};

/** Whether the headers alone show that a trusted issuer signed the request. Never rejects. */
export async function hasTrustedToken(
  headers: RequestHeaders,
  { tokens }: RequestRules,
): Promise<boolean> {
  try {
    await tokens.verify(readBearerToken(headers));
    return true;
  } catch {
    return false;
  }
}

export interface OpenedRequest extends VerifiedRequest {
  readonly profile: WebhookProfile;
}

/** Seconds after which a body was slow, so that its token is verified again. */
const SLOW_BODY = 1;

/** The part of a {@link VerifiedRequest} that depends on the body. */
type RequestPayload = Omit<VerifiedRequest, 'method' | 'claims' | 'profile' | 'attempt'>;

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
  const { keys, now } = rules.tokens.settings;
  const keysBefore = keys.latest?.();
  const arrivedAt = readSeconds(now);
  const compact = readBearerToken(incoming.headers);
  const token = await rules.tokens.verify(compact);
  const { header, claims, profile } = token;
  requireAllowedEvent(rules, claims.iss, claims.webhook.event);
  const format = rulesOf(profile);
  const opened = { method, claims, profile, attempt: format.attempt(claims.webhook) };
  const rule = format.payloadRule(claims.webhook, method, rules);
  if (rule.kind === 'no-body') {
    return Object.assign(opened, payloadWithoutBody(claims.webhook.data, true));
  }
  const form = { rule, isEnveloped: isEnveloped(profile, claims) };
  const payload = await readPayload(incoming, rules, form, claims);
  try {
    // While a body arrives slowly, the token or its key may expire or be revoked: the replay store forgets a token that has expired.
    const time = readSeconds(now);
    const expiresAt = claims.exp + rules.tokens.toleranceFor(header.typ, claims.webhook);
    const isSlow = time - arrivedAt >= SLOW_BODY;
    if (time >= expiresAt || isSlow || keys.latest?.() !== keysBefore)
      await rules.tokens.verify(compact);
  } catch (error) {
    payload.body.remove();
    throw error;
  }
  return Object.assign(opened, payload);
}

/** Whether the data is the member `data` of the body. The drafts do not know the claim. */
export function isEnveloped(profile: string, { webhook }: WebhookTokenClaims): boolean {
  return profile === DEFAULT_PROFILE && webhook.envelope === true;
}

/** Scheme, spaces and b64token, as RFC 6750, section 2.1, defines them; the verifier checks the token itself. */
const CREDENTIALS = /^bearer +([A-Za-z0-9._~+/-]+=*)$/i;
const SCHEME = /^bearer(?: |$)/i;
/** A second credential after a comma: a proxy has joined two headers. */
const JOINED_CREDENTIALS = /,\s*bearer /i;

/** @throws {@link WebhookTokenError} `missing_token` or `malformed_authorization` */
export function readBearerToken(headers: RequestHeaders): string {
  const values = headers.all('authorization');
  const value = values[0]?.trim();
  if (values.length > 1 || (value !== undefined && JOINED_CREDENTIALS.test(value))) {
    throw malformed('the Authorization header is repeated');
  }
  if (value === undefined || !SCHEME.test(value)) {
    throw new WebhookTokenError('missing_token', 'the request has no Bearer token');
  }
  const token = CREDENTIALS.exec(value)?.[1];
  if (token === undefined) throw malformed('the Authorization header is not "Bearer <token>"');
  return token;
}

function malformed(message: string): WebhookTokenError {
  return new WebhookTokenError('malformed_authorization', message);
}

async function readPayload(
  incoming: IncomingWebhook,
  rules: RequestRules,
  { rule, isEnveloped }: { readonly rule: PayloadRule; readonly isEnveloped: boolean },
  { iss, webhook }: WebhookTokenClaims,
): Promise<RequestPayload> {
  checkDeclaredBody(incoming, rule, rules.maxBodyBytes);
  const contentTypes = rules.issuers?.contentTypesOf(iss);
  const isDeclared = contentTypes !== undefined && declaresBody(incoming);
  if (isDeclared) checkContentType(incoming, contentTypes);
  const contentType = incoming.headers.get('content-type');
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
      return payloadWithoutBody(source === 'data' ? webhook.data : undefined, bodyVerified);
    }
    if (contentTypes !== undefined && !isDeclared) checkContentType(incoming, contentTypes);
    if (contentType !== undefined && isJsonType(contentType)) {
      const envelopeOf = isEnveloped ? webhook.event : undefined;
      // Parsed data are in memory anyway, so the body is kept there too and its file is removed.
      const kept = body instanceof MemoryBody ? body : new MemoryBody(await body.read());
      const parsed = parseBody(kept, { contentType, envelopeOf, digest: computed[0] }, rules);
      if (kept !== body) body.remove();
      return { isSpooled: false, bodyVerified, contentType, ...parsed };
    }
    if (isEnveloped) throw noEnvelope();
    const isSpooled = !(body instanceof MemoryBody);
    const data = isSpooled ? undefined : body.readNow();
    return { data, body, isSpooled, digest: computed[0], bodyVerified, contentType };
  } catch (error) {
    body.remove();
    throw error;
  }
}

interface JsonBody {
  readonly contentType: string;
  /** The event whose envelope the body is. */
  readonly envelopeOf: string | undefined;
  readonly digest: string | undefined;
}

/** @returns the data of a JSON body with the digest that identifies it, if its value does not */
function parseBody(
  body: MemoryBody,
  { contentType, envelopeOf, digest }: JsonBody,
  { maxJsonMembers }: RequestRules,
): Pick<RequestPayload, 'data' | 'body' | 'digest'> {
  const bytes = body.readNow();
  const data = parseJsonPayload(bytes, contentType, maxJsonMembers);
  if (envelopeOf === undefined) {
    // Small JSON is compared by its members, because a repeated event may be serialised differently.
    return { data, body, digest: bytes.length <= MAX_TOKEN_BYTES ? undefined : digest };
  }
  if (!isEnvelope(data) || data.type !== envelopeOf) throw noEnvelope();
  return { data: data.data, body, digest: envelopeDigest(bytes) };
}

function noEnvelope(): WebhookPayloadError {
  return new WebhookPayloadError(
    'invalid_payload',
    'the token says that the body is an envelope, and the body is none of its event: send { type, timestamp, data }, whose type is the event',
  );
}

function payloadWithoutBody(data: WebhookClaim['data'], bodyVerified: boolean): RequestPayload {
  const contentType = data === undefined ? undefined : 'application/json';
  return { data, body: NO_BODY, isSpooled: false, bodyVerified, contentType };
}

function requireMethod(method: string): 'HEAD' | 'POST' {
  if (method === 'HEAD' || method === 'POST') return method;
  throw new WebhookPayloadError('method_not_allowed', 'send a webhook by HEAD or POST');
}

/** @throws {@link WebhookTokenError} `event_forbidden` */
export function requireAllowedEvent(
  { issuers }: RequestRules,
  issuer: string,
  event: string,
): void {
  const patterns = issuers?.eventsOf(issuer);
  if (patterns?.some((pattern) => matchesEvent(pattern, event)) === false) {
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
