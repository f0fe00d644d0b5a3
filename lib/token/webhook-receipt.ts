import { createHash } from 'node:crypto';
import { isAudience } from './audience.js';
import { isEventName } from './event-name.js';
import { isIdentifier } from './identifier.js';
import { isObject } from './json/json-object.js';
import { readTokenAnatomy } from './token-anatomy.js';
import type { ReceivedReceipt, WebhookReceipt } from './webhook-receipt.interface.js';
import { FIRST_MILLISECOND_TIMESTAMP, type WebhookProfile } from './webhook-token.constants.js';

/** What a receipt tells of a request besides its token. */
export interface ReceiptFacts {
  readonly method: string;
  readonly bodyBytes: number;
  readonly contentType?: string | undefined;
  /** Absent where nothing has told the wire format. */
  readonly profile?: WebhookProfile | undefined;
}

const ALGORITHM = /^[A-Za-z0-9-]{1,16}$/;
const METHOD = /^[A-Z]{1,16}$/;
const HASH = /^[A-Za-z0-9-]{1,12}:[0-9A-Fa-f]{64,128}$/;
const MEDIA_TYPE = /^[\x20-\x7E]{1,255}$/;

/** The receipt of a token that was signed here, so that nothing can be missing. */
export function receiptOf(
  token: string,
  facts: ReceiptFacts & Pick<WebhookReceipt, 'profile'>,
): WebhookReceipt {
  return readReceipt(token, facts) as WebhookReceipt;
}

/**
 * The receipt of a token that anybody may have written: what is not of the form it should have is left out.
 *
 * @returns without `authenticated`, which the token cannot say of itself
 */
export function readReceipt(
  token: string,
  facts: ReceiptFacts,
): Omit<ReceivedReceipt, 'authenticated'> {
  const { header = {}, claims = {} } = readTokenAnatomy(token);
  const { jti, txn, iss, sub, aud, iat, exp, webhook: claim } = claims;
  const webhook = isObject(claim) ? claim : {};
  const all: Record<keyof WebhookReceipt, unknown> = {
    id: only(isIdentifier, txn) ?? only(isIdentifier, jti),
    jti: only(isIdentifier, jti),
    txn: only(isIdentifier, txn),
    event: only(isEventName, webhook['event']),
    issuer: only(isIdentifier, iss),
    audience: only(isAudience, aud),
    subject: only(isIdentifier, sub),
    alg: matching(ALGORITHM, header['alg']),
    kid: only(isIdentifier, header['kid']),
    profile: facts.profile,
    method: matching(METHOD, facts.method) ?? '?',
    issuedAt: isoTime(iat),
    expiresAt: isoTime(exp),
    hash: matching(HASH, webhook['hash'])?.toLowerCase(),
    bodyBytes: facts.bodyBytes,
    contentType: matching(MEDIA_TYPE, facts.contentType),
    tokenSha256: createHash('sha256').update(token).digest('hex'),
  };
  const told: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(all)) if (value !== undefined) told[name] = value;
  return told as unknown as Omit<ReceivedReceipt, 'authenticated'>;
}

function only<T>(is: (value: unknown) => value is T, value: unknown): T | undefined {
  return is(value) ? value : undefined;
}

function matching(form: RegExp, value: unknown): string | undefined {
  return typeof value === 'string' && form.test(value) ? value : undefined;
}

function isoTime(seconds: unknown): string | undefined {
  return typeof seconds === 'number' &&
    Number.isInteger(seconds) &&
    seconds >= 0 &&
    seconds < FIRST_MILLISECOND_TIMESTAMP
    ? new Date(seconds * 1_000).toISOString()
    : undefined;
}
