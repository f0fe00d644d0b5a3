import { hash } from 'node:crypto';
import { WebhookConfigurationError, WebhookSignatureError } from '../errors/webhook.error.js';
import { isSame } from '../keys/standard-webhooks-key.js';
import type { RequestHeaders } from '../request/webhook-scheme.js';
import { isObject } from '../token/json.js';

/**
 * A member of parsed JSON, however deep.
 *
 * @returns `undefined` if it is not a string
 */
export function stringAt(data: unknown, ...path: readonly string[]): string | undefined {
  let value = data;
  for (const name of path) {
    if (!isObject(value) || !Object.hasOwn(value, name)) return undefined;
    value = value[name];
  }
  return typeof value === 'string' ? value : undefined;
}

/**
 * The only value of a header that belongs to a signature: visible ASCII.
 *
 * @throws {@link WebhookSignatureError}
 */
export function signatureHeader(headers: RequestHeaders, name: string): string {
  const values = headers.all(name);
  const [value] = values;
  if (value === undefined || value === '') {
    throw new WebhookSignatureError('missing_signature', `the request has no ${name} header`);
  }
  if (values.length > 1) throw malformed(`the ${name} header is repeated`);
  if (!/^[\x20-\x7E]+$/.test(value)) throw malformed(`the ${name} header is not ASCII`);
  return value;
}

/** Whether a value is a configured one. Digests have one length, so not even that of a configured value can be measured. */
export function isConfigured(given: string, values: readonly string[]): boolean {
  const digest = hash('sha256', given);
  return values.map((one) => isSame(hash('sha256', one), digest)).includes(true);
}

/** Seconds or milliseconds since 1970, or ISO 8601. */
export type TimeUnit = 's' | 'ms' | 'iso';

interface TimeForm {
  readonly name: string;
  readonly form: RegExp;
  /** @returns seconds since the epoch */
  read(text: string): number;
  /** @param now - milliseconds since the epoch */
  write(now: number): string;
}

const UNITS: Readonly<Record<TimeUnit, TimeForm>> = {
  s: {
    name: 'whole seconds since 1970',
    form: /^\d{1,11}$/,
    read: Number,
    write: (now) => String(Math.floor(now / 1_000)),
  },
  ms: {
    name: 'milliseconds since 1970',
    form: /^\d{1,14}$/,
    read: (text) => Number(text) / 1_000,
    write: String,
  },
  iso: {
    name: 'a time in ISO 8601 with a time zone',
    form: /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)$/,
    read: (text) => Date.parse(text) / 1_000,
    write: (now) => new Date(now).toISOString(),
  },
};

/**
 * Reads a signed time.
 *
 * @returns whole seconds since the epoch
 * @throws {@link WebhookSignatureError}
 */
export function readTimestamp(text: string, unit: TimeUnit = 's'): number {
  const { name, form, read } = UNITS[unit];
  const seconds = read(text);
  // A date may have the form and not exist.
  if (form.test(text) && Number.isFinite(seconds)) return Math.floor(seconds);
  throw malformed(`the signed time is not ${name}`);
}

/** As `readTimestamp`, for an explanation: also of seconds that are milliseconds. */
export function claimedTime(text: string, unit: TimeUnit = 's'): number | undefined {
  if (unit === 's') return /^\d{1,15}$/.test(text) ? Number(text) : undefined;
  return readTimestamp(text, unit);
}

/** @param now - milliseconds since the epoch */
export function writeTimestamp(now: number, unit: TimeUnit = 's'): string {
  return UNITS[unit].write(now);
}

/** Each signature is compared with each key, so a request must not bring many. */
const MAX_SIGNATURES = 16;

export function requireSignatures(signatures: readonly string[]): void {
  if (signatures.length === 0) throw malformed('no signature has the form that the sender uses');
  if (signatures.length > MAX_SIGNATURES) {
    throw malformed(`the request has more than ${MAX_SIGNATURES} signatures`);
  }
}

/** Characters of a challenge that are sent back. */
export const MAX_CHALLENGE = 1_024;

export function malformed(message: string): WebhookSignatureError {
  return new WebhookSignatureError('malformed_signature', message);
}

/** The members of an object; of anything else, none. */
export function members(data: unknown): Readonly<Record<string, unknown>> {
  return isObject(data) ? data : {};
}

/**
 * The members of a test event's data, to which its sender adds others.
 *
 * @throws {@link WebhookConfigurationError} for anything but an object or nothing, which the signed body could not contain
 */
export function testMembers(data: unknown, path = 'data'): Readonly<Record<string, unknown>> {
  if (data === undefined || isObject(data)) return data ?? {};
  throw new WebhookConfigurationError([
    { path, message: 'must be an object, since the sender puts members of its own beside yours' },
  ]);
}
