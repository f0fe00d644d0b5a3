import { isPromise } from 'node:util/types';
import {
  WebhookConfigurationError,
  WebhookPayloadError,
  WebhookSignatureError,
  isWebhookError,
} from '../errors/webhook.error.js';
import type { Duration } from '../clock/duration.js';
import { func, optional, required, secondsWithin } from '../options/rules.js';
import { unprinted } from '../options/unprinted.js';
import { checkDeclaredBody, readBody } from '../request/body.js';
import { parseSenderPayload } from '../request/sender-payload.js';
import { isAuthenticatedRefusal } from '../request/open-request.js';
import type {
  RequestHeaders,
  SenderChallenge,
  SenderDiagnosis,
  WebhookScheme,
} from '../request/webhook-scheme.js';
import { isIdentifier } from '../token/identifier.js';
import { isObject } from '../token/json.js';
import { readSeconds, requireUnexpired } from '../token/validate-claims.js';
import { NAME } from './option-rules.js';
import { ask, eventsOf, invalid, nameOf } from './sender-event.js';

/** A verified request, as far as its sender's event is named by it. */
export interface SenderMessage {
  /** Names are in lower case. Only those that the sender signs are verified. */
  readonly headers: Pick<RequestHeaders, 'get'>;
  /** The parsed JSON or form; a Buffer for another content type. Of a request with several events, one of them. */
  readonly data: unknown;
  /** The verified claims of a sender that sends a JSON Web Token; otherwise empty. */
  readonly claims: Readonly<Record<string, unknown>>;
}

export interface SenderOptions {
  /** Names the event: segments of letters, digits, `_` and `-`, joined by full stops. */
  readonly event?: ((message: SenderMessage) => string) | undefined;
  /**
   * Seconds by which the signed time may differ from the receiver's clock, in both directions, or a string such as `'300s'`;
   * default 300. Only applies if the sender signs a time.
   */
  readonly tolerance?: Duration | undefined;
}

/** A request that may be a sender's check of the URL. */
export interface UrlCheck extends Pick<SenderMessage, 'headers'> {
  /** A `POST` is verified; a `GET` or `HEAD` is not. */
  readonly method: 'GET' | 'HEAD' | 'POST';
  readonly query: URLSearchParams;
  /** Of a `POST`, as for `event`. */
  readonly data?: unknown;
}

/** Options of a sender that this package has no preset for. */
export interface DeclaredSenderOptions extends SenderOptions {
  /** The sender's name: `event.issuer` and `event.profile`. */
  readonly name: string;
  readonly event: NonNullable<SenderOptions['event']>;
  readonly id?: ((message: SenderMessage) => string | undefined) | undefined;
  /** The events of a request, if the sender puts several into one. Each is handled and recorded by itself. */
  readonly events?: ((message: SenderMessage) => readonly unknown[]) | undefined;
  /**
   * Answers a check of the URL with 200: a string as plain text, an object as JSON. Return `undefined` for any other request. If it
   * throws or returns anything else, the answer is 400. Without this option, only `POST` is accepted.
   */
  readonly challenge?:
    ((check: UrlCheck) => string | Readonly<Record<string, unknown>> | undefined) | undefined;
}

/** Who signs requests, and how: for the option `sender` of a receiver. It holds the secret, and does not print it. */
export interface WebhookSender extends WebhookScheme {
  /**
   * Signs an event as the sender would, for tests: `deliverWebhook(app, event, data, { sender })`.
   *
   * @throws {@link WebhookConfigurationError} if the data names another event, or is no object although the sender's events are,
   *   or the sender has no key that signs
   */
  sign(message: {
    readonly event: string;
    /** `event.data` of the handler. Members that the sender adds are added, unless they are there. */
    readonly data: unknown;
    /** Default: a random one. */
    readonly id?: string | undefined;
    /** Milliseconds since the epoch. */
    readonly now: number;
  }): Promise<{ readonly headers: Record<string, string>; readonly body: Buffer<ArrayBuffer> }>;
}

/** An event that a test signs as its sender would. */
export type TestMessage = Parameters<WebhookSender['sign']>[0] & { readonly id: string };

export type SignedTestMessage = Awaited<ReturnType<WebhookSender['sign']>>;

/** What verified credentials say of their request. */
export interface Proof {
  /** Seconds since the epoch: a signed time, which must be near the receiver's clock. */
  readonly timestamp?: number | undefined;
  /** The signed id. */
  readonly id?: string | undefined;
  /** Seconds since the epoch: when the credentials were made, and when they end. */
  readonly issuedAt?: number | undefined;
  readonly expires?: number | undefined;
  /** Who chose the id and the content, if the sender stands for several issuers. */
  readonly issuer?: string | undefined;
  /** The claims of the sender's own token. */
  readonly token?: Readonly<Record<string, unknown>> | undefined;
  /** The event's data, if it is not the body. */
  readonly content?: unknown;
}

/** What the headers of a request claim, in the form that the sender gives them. */
export interface Credentials extends Proof {
  /**
   * Whether one of the signatures holds for the body, or what a signature that is in the body says.
   *
   * @param read.target - path and query of the request
   * @param read.digest - of the body, `sha256:<hex>`
   * @param read.now - seconds since the epoch, once the body was read
   */
  holdFor(
    body: Buffer,
    read: {
      readonly target: string | undefined;
      readonly digest: string;
      readonly now: number;
      readonly maxJsonMembers: number;
    },
  ): boolean | Proof | Promise<boolean | Proof>;
  /** Signs a short text with the secret that holds for the body, in hex; for challenges. */
  hmac?(text: string): string;
}

/** Writes a test event as the sender does: its headers, and the JSON of its body. */
export type ComposeTest = (message: TestMessage) => {
  readonly headers?: Readonly<Record<string, string>>;
  readonly data: unknown;
};

/** The headers and the body of a test event, as JSON, before it is signed. */
export function composeTest(message: TestMessage, compose?: ComposeTest): SignedTestMessage {
  const { headers, data } = compose?.(message) ?? { data: message.data };
  return {
    headers: { 'content-type': 'application/json', ...headers },
    body: Buffer.from(JSON.stringify(data ?? null)),
  };
}

/** What differs from sender to sender. */
export interface SenderParts {
  readonly name: string;
  /** A header that every request of the sender has, in one of its names. */
  readonly present: readonly string[];
  /** Default: the request has one of the headers {@link present}. */
  readonly hasCredentials?: WebhookScheme['hasCredentials'];
  /** Default: {@link present}. */
  readonly credentialHeaders?: WebhookScheme['credentialHeaders'];
  /** Seconds. */
  readonly tolerance: number;
  /**
   * Reads the credentials, and verifies what does not depend on the body.
   *
   * @param now - seconds since the epoch
   * @throws {@link WebhookSignatureError}, {@link WebhookTokenError}
   */
  read(headers: RequestHeaders, now: number): Credentials | Promise<Credentials>;
  /** Reads what the headers claim, for logs: it is not verified. Default: nothing. */
  claim?(headers: RequestHeaders): Proof;
  event(message: SenderMessage): string | undefined;
  /** The event's id. If the request has no signed id and this is none, the digest of the body identifies the event. */
  id?(message: SenderMessage): string | undefined;
  /** Reads the body, if it has a form of its own. */
  readonly parse?: typeof parseSenderPayload;
  /** The event's data; default: what the message has. `maxMembers` limits JSON inside it. */
  data?(message: SenderMessage, maxMembers: number): unknown;
  /** The events of a request that may have several; `undefined` if the request is one event. */
  split?(message: SenderMessage): readonly unknown[] | undefined;
  /** Headers that distinguish events of one body, if the digest of the body identifies events. */
  readonly identifying?: readonly string[] | undefined;
  /** Whether `data` of a body with `type` and `data` is the event's data. */
  readonly envelope?: boolean | undefined;
  /** Default `true`. */
  readonly bodyVerified?: boolean | undefined;
  /** The largest body that the sender sends, if that is known. */
  readonly maxBodyBytes?: number | undefined;
  /** Headers that are kept in `claims.headers` although no signature covers them. */
  readonly keptHeaders?: readonly string[] | undefined;
  /** The answer to a challenge; `undefined` if the request is an event. */
  challenge?(
    message: SenderMessage,
    credentials: Credentials,
    query: URLSearchParams,
  ): SenderChallenge | undefined;
  /** Challenges that have no signature: an answer must reflect nothing but what the sender's manual names. */
  readonly preflight?:
    | {
        readonly methods: readonly ('GET' | 'HEAD' | 'OPTIONS' | 'POST')[];
        answer(request: {
          readonly method: string;
          readonly headers: RequestHeaders;
          readonly query: URLSearchParams;
        }): SenderChallenge | undefined;
      }
    | undefined;
  /** Default: {@link acknowledge}. */
  readonly answer?: WebhookScheme['answer'];
  /** Takes a refused request apart; may throw for one that has not the sender's form. */
  diagnose?(
    headers: RequestHeaders,
    body: Buffer | undefined,
  ): Omit<SenderDiagnosis, 'headers' | 'tolerance'>;
  readonly checkKeySets?: WebhookScheme['checkKeySets'];
  readonly poll?: WebhookScheme['poll'];
  sign(message: TestMessage): ComposedTest | Promise<ComposedTest>;
}

/** A signed test, and the claims of its token. */
type ComposedTest = SignedTestMessage & Pick<Partial<SenderMessage>, 'claims'>;

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
  'unsupported_content_type',
]);

/** No token covers the body in a way that can be checked while it arrives; its SHA-256 is computed meanwhile. */
const READ_ALL = { kind: 'unverified' } as const;

/** A scheme that reads the body into memory: method, credentials, time, body, signature, events. */
export function createSender(parts: SenderParts): WebhookSender {
  const { name, tolerance, preflight } = parts;
  return unprinted<WebhookSender>(
    {
      name,
      challengeMethods: preflight?.methods.filter((one) => one !== 'HEAD' && one !== 'POST'),
      answer: parts.answer ?? acknowledge,
      poll: parts.poll,
      checkKeySets: parts.checkKeySets,
      sharesIds: parts.envelope !== undefined,
      credentialHeaders: parts.credentialHeaders ?? parts.present,

      hasCredentials:
        parts.hasCredentials ??
        ((headers) => parts.present.some((header) => headers.get(header) !== undefined)),

      async verify(incoming, { tokens, maxJsonMembers, ...rules }) {
        const { headers, method, target } = incoming;
        const maxBodyBytes = Math.min(rules.maxBodyBytes, parts.maxBodyBytes ?? Infinity);
        const preflightAnswer = preflight?.methods.some((one) => one === method)
          ? preflight.answer({ method, headers, query: queryOf(target) })
          : undefined;
        if (preflightAnswer !== undefined) return preflightAnswer;
        if (method !== 'POST') {
          const methods = ['POST'];
          throw new WebhookPayloadError('method_not_allowed', `${name} sends by POST`, { methods });
        }
        const arrivedAt = readSeconds(tokens.settings.now);
        const credentials = await parts.read(headers, arrivedAt);
        requireTime(credentials, arrivedAt, tolerance);
        checkDeclaredBody(incoming, READ_ALL, maxBodyBytes);
        const read = await readBody(incoming.body, { rule: READ_ALL, maxBodyBytes });
        const body = read.body.readNow();
        const digest = read.computed[0]!;
        // A slow body must not outlast its credentials: the replay store forgets an event once they have ended.
        const now = readSeconds(tokens.settings.now);
        requireTime(credentials, now, tolerance);
        const proof = await credentials.holdFor(body, { target, digest, now, maxJsonMembers });
        if (proof === false) {
          throw new WebhookSignatureError(
            'invalid_signature',
            'no signature of the request matches its body and a secret of the sender',
          );
        }
        const proven: Proof = { ...credentials, ...(proof === true ? undefined : proof) };
        requireTime(proven, now, tolerance);
        const contentType = headers.get('content-type');
        const { parse = parseSenderPayload } = parts;
        const content = proven.content ?? parse(body, { contentType }, maxJsonMembers);
        const message = { headers, data: content, claims: proven.token ?? {} };
        const challenge = parts.challenge?.(message, credentials, queryOf(target));
        if (challenge !== undefined) return challenge;
        return eventsOf(parts, {
          message,
          proven,
          body,
          digest,
          contentType,
          now: arrivedAt,
          maxJsonMembers,
        });
      },

      isAuthenticated: (error) =>
        isWebhookError(error) && !UNAUTHENTICATED.has(error.code) && isAuthenticatedRefusal(error),

      diagnose(headers, body) {
        const known = { headers: parts.present, tolerance };
        try {
          return { ...known, ...parts.diagnose?.(headers, body) };
        } catch {
          return known;
        }
      },

      claims({ headers }) {
        try {
          const { id, timestamp, issuedAt = timestamp } = parts.claim?.(headers) ?? {};
          return {
            issuer: name,
            ...(isIdentifier(id) && { id }),
            ...(issuedAt !== undefined && { issuedAt: new Date(issuedAt * 1_000).toISOString() }),
          };
        } catch {
          return { issuer: name };
        }
      },

      async sign(message) {
        const id = message.id ?? `msg_${crypto.randomUUID()}`;
        const { claims, ...signed } = await parts.sign({ ...message, id });
        requireSameEvent(parts, signed, message.event, claims);
        return signed;
      },
    },
    `[sender: ${name}]`,
  );
}

/** Some senders count every answer but 200 as a failure. */
const acknowledge: NonNullable<SenderParts['answer']> = ({ status }) =>
  status === 202 || status === 204 ? { status: 200 } : undefined;

/** The parts of a sender that its {@link DeclaredSenderOptions} describe, beside its other options. */
export function declaredParts<Options extends Pick<DeclaredSenderOptions, 'events' | 'challenge'>>({
  events,
  challenge,
  ...others
}: Options): Omit<Options, 'events' | 'challenge'> &
  Pick<SenderParts, 'split' | 'challenge' | 'preflight'> {
  return { ...others, split: events, ...(challenge && challengeParts(challenge)) };
}

function challengeParts(
  challenge: NonNullable<DeclaredSenderOptions['challenge']>,
): Pick<SenderParts, 'challenge' | 'preflight'> {
  const answerTo = (check: UrlCheck): SenderChallenge | undefined => {
    const answer: unknown = ask('challenge', () => challenge(check));
    if (answer === undefined) return undefined;
    if (typeof answer === 'string') {
      // Nothing that a browser could take for a page.
      return { challengeText: answer, challengeHeaders: { 'X-Content-Type-Options': 'nosniff' } };
    }
    if (isObject(answer) && !isPromise(answer)) {
      // Copied as JSON here, where an error of it can be explained.
      return { challengeAnswer: ask('challenge', () => JSON.parse(JSON.stringify(answer))) };
    }
    throw invalid(
      'the function "challenge" of the sender returned neither a string nor an object: let it return undefined for a request that is no check of the URL',
    );
  };
  return {
    challenge: ({ headers, data }, _credentials, query) =>
      answerTo({ method: 'POST', headers, query, data }),
    preflight: {
      methods: ['GET', 'HEAD'],
      answer: ({ method, headers, query }) =>
        answerTo({ method: method as 'GET' | 'HEAD', headers, query }),
    },
  };
}

function queryOf(target: string | undefined): URLSearchParams {
  return new URLSearchParams(/\?([^#]*)/.exec(target ?? '')?.[1]);
}

function requireTime({ timestamp, expires }: Proof, now: number, tolerance: number): void {
  if (expires !== undefined) requireUnexpired(now, expires);
  if (timestamp === undefined || Math.abs(Math.floor(now) - timestamp) <= tolerance) return;
  throw new WebhookSignatureError(
    'timestamp_out_of_tolerance',
    `the signed time is more than ${tolerance} seconds from the receiver's clock`,
  );
}

/** A test whose data names another event, or none, would not reach the handler that it is written for. */
function requireSameEvent(
  parts: SenderParts,
  { headers, body }: SignedTestMessage,
  event: string,
  claims: SenderMessage['claims'] = {},
): void {
  const get = (name: string): string | undefined => headers[name];
  const data = parseSenderPayload(body, { contentType: get('content-type') }, Infinity);
  // The event is in a token, from which it was composed.
  if (Buffer.isBuffer(data)) return;
  const whole = { headers: { get }, data, claims };
  try {
    const [first = whole] = parts.split?.(whole)?.map((one) => ({ ...whole, data: one })) ?? [];
    if (nameOf(parts, first) === event) return;
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

/** The most seconds between the signed time and the receiver's clock: a wider tolerance keeps captured requests alive. */
const MAX_TOLERANCE = 3_600;

export const toleranceSeconds = secondsWithin(
  1,
  MAX_TOLERANCE,
  `must be 1 to ${MAX_TOLERANCE} seconds, such as '300s'`,
);

export const SENDER = {
  event: optional(func<NonNullable<SenderOptions['event']>>('({ headers, data }) => string')),
  tolerance: optional(toleranceSeconds, 300),
};

/** Options of every {@link DeclaredSenderOptions}. */
export const DECLARED = {
  name: required(NAME),
  event: required(func<DeclaredSenderOptions['event']>('({ headers, data }) => string')),
  id: optional(func<NonNullable<DeclaredSenderOptions['id']>>('({ headers, data }) => string')),
  events: optional(func<NonNullable<DeclaredSenderOptions['events']>>('({ data }) => list')),
  challenge: optional(
    func<NonNullable<DeclaredSenderOptions['challenge']>>(
      '({ method, headers, query, data }) => string, object or undefined',
    ),
  ),
};
