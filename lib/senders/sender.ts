import { hash } from 'node:crypto';
import {
  WebhookConfigurationError,
  WebhookPayloadError,
  WebhookSignatureError,
  errorName,
  isWebhookError,
} from '../errors/webhook.error.js';
import type { Duration } from '../clock/duration.js';
import { func, optional, seconds, type Rule } from '../options/rules.js';
import { unprinted } from '../options/unprinted.js';
import { checkDeclaredBody, MemoryBody, readBody } from '../request/body.js';
import {
  envelopeDigest,
  isEnvelope,
  isJsonType,
  parseSenderPayload,
} from '../request/json-payload.js';
import type { RequestHeaders, SenderChallenge, WebhookScheme } from '../request/webhook-scheme.js';
import { isObject } from '../token/decoding.js';
import { isEventName } from '../token/event-name.js';
import { isIdentifier } from '../token/identifier.js';
import { readSeconds } from '../token/validate-claims.js';
import { MAX_EVENT_NAME_LENGTH, MAX_TOKEN_BYTES } from '../token/webhook-token.constants.js';

/** A verified request, as far as its sender's event is named by it. */
export interface SenderMessage {
  /** Names are in lower case. Only those that the sender signs are verified. */
  readonly headers: Pick<RequestHeaders, 'get'>;
  /** The parsed JSON or form; a Buffer for another content type. */
  readonly data: unknown;
}

/** Options of every sender. */
export interface SenderOptions {
  /** Names the event: segments of letters, digits, `_` and `-`, joined by full stops. */
  readonly event?: ((message: SenderMessage) => string) | undefined;
  /**
   * Seconds by which the signed time may differ from the receiver's clock, in both directions, or a string such as `'300s'`;
   * default 300. Only applies if the sender signs a time.
   */
  readonly tolerance?: Duration | undefined;
}

/** An event that a test signs as its sender would. */
export interface TestMessage {
  readonly event: string;
  /** `event.data` of the handler. Members that the sender adds are added, unless they are there. */
  readonly data: unknown;
  /** Default: a random one. */
  readonly id?: string | undefined;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

/** A request that a test has signed. */
export interface SignedTestMessage {
  readonly headers: Record<string, string>;
  readonly body: Buffer<ArrayBuffer>;
}

/** Who signs requests, and how: for the option `sender` of a receiver. It holds the secret, and does not print it. */
export interface WebhookSender extends WebhookScheme {
  /** Signs an event as the sender would, for tests: `deliverWebhook(app, event, data, { sender })`. */
  sign(message: TestMessage): SignedTestMessage;
}

/** What the headers of a request claim, in the form that the sender gives them. */
export interface Credentials {
  /** Seconds since the epoch, if the sender signs a time. */
  readonly timestamp?: number | undefined;
  /** The id, if a header has it and it is signed. */
  readonly id?: string | undefined;
  /** Whether one of the signatures holds for the body. */
  holdFor(body: Buffer): boolean;
  /** Signs a short text with the secret that holds for the body, in hex; for challenges. */
  hmac?(text: string): string;
}

/** What differs from sender to sender. */
export interface SenderParts {
  readonly name: string;
  /** A header that every request of the sender has, in one of its names. */
  readonly present: readonly string[];
  /** Seconds. */
  readonly tolerance: number;
  /**
   * Reads the credentials.
   *
   * @throws {@link WebhookSignatureError}
   */
  read(headers: RequestHeaders): Credentials;
  event(message: SenderMessage): string | undefined;
  /** The id, if the signature covers it; without it, the digest of the body identifies the event. */
  id?(message: SenderMessage): string | undefined;
  /** Whether the event's name distinguishes events of one body. */
  readonly sharesBodies?: boolean | undefined;
  /** Whether `data` of a body with `type` and `data` is the event's data. */
  readonly envelope?: boolean | undefined;
  /** Default `true`. */
  readonly bodyVerified?: boolean | undefined;
  /** Headers that are kept in `claims.headers` although no signature covers them. */
  readonly keptHeaders?: readonly string[] | undefined;
  /** The answer to a challenge; `undefined` if the request is an event. */
  challenge?(data: unknown, credentials: Credentials): Readonly<Record<string, string>> | undefined;
  sign(message: TestMessage & { readonly id: string }): SignedTestMessage;
}

/** Refusals before the signature is verified, or that do not depend on it. */
const UNAUTHENTICATED: ReadonlySet<string> = new Set([
  'missing_signature',
  'malformed_signature',
  'invalid_signature',
  'timestamp_out_of_tolerance',
  'method_not_allowed',
  'payload_too_large',
  'payload_incomplete',
  'payload_consumed',
  'unsupported_encoding',
]);

/** No token covers the body, so all of it is read before it is verified; its SHA-256 is computed meanwhile. */
const READ_ALL = { kind: 'unverified' } as const;

/** A scheme that reads the body, in memory, to verify it: method, headers, time, body, signature, event. */
export function createSender(parts: SenderParts): WebhookSender {
  const { name, tolerance } = parts;
  return unprinted<WebhookSender>(
    {
      name,
      sharesIds: parts.envelope !== undefined,

      hasCredentials: (headers) =>
        parts.present.some((header) => headers.get(header) !== undefined),

      async verify(incoming, { tokens, maxBodyBytes, maxJsonMembers }) {
        if (incoming.method !== 'POST') {
          const methods = ['POST'];
          throw new WebhookPayloadError('method_not_allowed', `${name} sends by POST`, { methods });
        }
        const { headers } = incoming;
        const credentials = parts.read(headers);
        const now = readSeconds(tokens.settings.now);
        requireTime(credentials.timestamp, Math.floor(now), tolerance);
        checkDeclaredBody(incoming, READ_ALL, maxBodyBytes);
        const read = await readBody(incoming.body, { rule: READ_ALL, maxBodyBytes });
        const body = read.body.readNow();
        if (!credentials.holdFor(body)) {
          throw new WebhookSignatureError(
            'invalid_signature',
            'no signature of the request matches its body and a secret of the sender',
          );
        }
        const contentType = headers.get('content-type');
        const content = parseSenderPayload(body, { contentType }, maxJsonMembers);
        const challengeAnswer = parts.challenge?.(content, credentials);
        if (challengeAnswer !== undefined) return { challengeAnswer } satisfies SenderChallenge;
        const message = { headers, data: content };
        const event = nameOf(parts, message);
        const digest = read.computed[0]!;
        const signedId = requireId(credentials.id ?? parts.id?.(message));
        const envelope = parts.envelope === true && isEnvelope(content);
        const iat = credentials.timestamp ?? now;
        const kept = keptHeaders(headers, parts.keptHeaders);
        return {
          method: 'POST',
          claims: {
            iss: name,
            jti: signedId ?? (parts.sharesBodies === true ? digestOf(event, digest) : digest),
            iat,
            exp: credentials.timestamp === undefined ? iat : iat + tolerance,
            webhook: { event, ...(envelope && { envelope }) },
            ...(kept !== undefined && { headers: kept }),
          },
          profile: name,
          attempt: undefined,
          data: envelope ? content.data : content,
          body: new MemoryBody(body),
          isSpooled: false,
          digest: contentOf(parts, { signedId, digest, body, contentType, envelope }),
          bodyVerified: parts.bodyVerified ?? true,
          contentType: contentType ?? 'application/json',
        };
      },

      isAuthenticated: (error) => isWebhookError(error) && !UNAUTHENTICATED.has(error.code),

      claims({ headers }) {
        try {
          const { id, timestamp } = parts.read(headers);
          return {
            issuer: name,
            ...(isIdentifier(id) && { id }),
            ...(timestamp !== undefined && { issuedAt: new Date(timestamp * 1_000).toISOString() }),
          };
        } catch {
          return { issuer: name };
        }
      },

      sign: (message) => {
        const signed = parts.sign({ ...message, id: message.id ?? `msg_${crypto.randomUUID()}` });
        requireSameEvent(parts, signed, message.event);
        return signed;
      },
    },
    `[sender: ${name}]`,
  );
}

function requireTime(timestamp: number | undefined, now: number, tolerance: number): void {
  if (timestamp === undefined || Math.abs(now - timestamp) <= tolerance) return;
  throw new WebhookSignatureError(
    'timestamp_out_of_tolerance',
    `the signed time is more than ${tolerance} seconds from the receiver's clock`,
  );
}

/** The content that a sender may not change under one id. Most senders repeat an event with another state of its counters. */
function contentOf(
  parts: SenderParts,
  request: {
    readonly signedId: string | undefined;
    readonly digest: string;
    readonly body: Buffer;
    readonly contentType: string | undefined;
    readonly envelope: boolean;
  },
): string | undefined {
  const { signedId, digest, body, contentType, envelope } = request;
  if (signedId === undefined) return digest;
  if (parts.envelope === undefined) return signedId;
  // As for a token with the same body.
  if (envelope) return envelopeDigest(body);
  const isJson = contentType === undefined || isJsonType(contentType);
  return isJson && body.length <= MAX_TOKEN_BYTES ? undefined : digest;
}

function nameOf(parts: SenderParts, message: SenderMessage): string {
  let event: unknown;
  try {
    event = parts.event(message);
  } catch (error) {
    throw invalid(`the function "event" of the sender failed: ${errorName(error)}`);
  }
  if (isEventName(event, 'swt-draft-00')) return event;
  throw invalid(
    `the request names no event, or not with segments of letters, digits, "_" and "-" of at most ${MAX_EVENT_NAME_LENGTH} characters: set "event" of the sender`,
  );
}

function requireId(id: string | undefined): string | undefined {
  if (id === undefined || isIdentifier(id)) return id;
  throw invalid('the id of the event is too long or has control characters');
}

function invalid(message: string): WebhookPayloadError {
  return new WebhookPayloadError('invalid_payload', message);
}

function digestOf(event: string, digest: string): string {
  return `sha256:${hash('sha256', `${event}\n${digest}`)}`;
}

function keptHeaders(
  headers: RequestHeaders,
  names: readonly string[] = [],
): Readonly<Record<string, string>> | undefined {
  const kept = names.flatMap((name) => {
    const value = headers.get(name);
    return isIdentifier(value) ? [[name, value] as const] : [];
  });
  return kept.length === 0 ? undefined : Object.fromEntries(kept);
}

/** A test whose data names another event, or none, would not reach the handler that it is written for. */
function requireSameEvent(
  parts: SenderParts,
  { headers, body }: SignedTestMessage,
  event: string,
): void {
  const get = (name: string): string | undefined => headers[name];
  const contentType = get('content-type');
  const data = parseSenderPayload(body, { contentType }, Infinity);
  try {
    if (nameOf(parts, { headers: { get }, data }) === event) return;
  } catch {
    // It names none.
  }
  throw new WebhookConfigurationError([
    {
      path: parts.name,
      message: `the data does not name the event "${event}"; put the name where the sender puts it`,
    },
  ]);
}

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

/**
 * Reads a signed time: whole seconds since the epoch.
 *
 * @throws {@link WebhookSignatureError}
 */
export function readTimestamp(text: string): number {
  if (/^\d{1,11}$/.test(text)) return Number(text);
  throw malformed('the signed time is not whole seconds since 1970');
}

/** Each signature is compared with each key, so a request must not bring many. */
const MAX_SIGNATURES = 16;

/** @throws {@link WebhookSignatureError} */
export function requireSignatures(signatures: readonly string[]): void {
  if (signatures.length === 0) throw malformed('no signature has the form that the sender uses');
  if (signatures.length > MAX_SIGNATURES) {
    throw malformed(`the request has more than ${MAX_SIGNATURES} signatures`);
  }
}

export function malformed(message: string): WebhookSignatureError {
  return new WebhookSignatureError('malformed_signature', message);
}

/** The most seconds between the signed time and the receiver's clock: a wider tolerance keeps captured requests alive. */
const MAX_TOLERANCE = 3_600;

const tolerance: Rule<number> = (value, at, name) => {
  const read = seconds(value, at, name);
  if (read === undefined || (read >= 1 && read <= MAX_TOLERANCE)) return read;
  return at.add(name, `must be 1 to ${MAX_TOLERANCE} seconds, such as '300s'`) as never;
};

/** The rules of {@link SenderOptions}. */
export const SENDER = {
  event: optional(func<NonNullable<SenderOptions['event']>>('({ headers, data }) => string')),
  tolerance: optional(tolerance, 300),
};
