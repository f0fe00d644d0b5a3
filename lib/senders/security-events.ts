import {
  WebhookConfigurationError,
  WebhookPayloadError,
  WebhookSignatureError,
  isWebhookError,
} from '../errors/webhook.error.js';
import type { Duration } from '../clock/duration.js';
import { untilAborted } from '../clock/webhook-clock.js';
import { EGRESS, type EgressOptions, EgressPolicy } from '../egress/egress-policy.js';
import { createJsonClient, UnreadableAnswer } from '../keys/json-client.js';
import { CERTIFICATES } from '../egress/guarded-agent.js';
import type { JwksFetchOptions } from '../keys/jwks-options.js';
import { reasonOf } from '../keys/key-log.js';
import { readOptions } from '../options/read-options.js';
import {
  duration,
  either,
  flag,
  func,
  object,
  optional,
  type Read,
  required,
  seconds,
  text,
  whole,
} from '../options/rules.js';
import { fromRequestLike } from '../request/request-like.js';
import { mediaType } from '../token/payload.js';
import type {
  AnswerFacts,
  EventPoll,
  IncomingWebhook,
  RequestHeaders,
  SenderAnswer,
} from '../request/webhook-scheme.js';
import { isObject } from '../token/json.js';
import { invalidClaim } from '../token/validate-claims.js';
import { readTokenAnatomy } from '../token/webhook-receipt.js';
import { MAX_TOKEN_BYTES } from '../token/webhook-token.constants.js';
import {
  diagnosedToken,
  type JwtClaims,
  type JwtRules,
  signTest,
  testClaims,
  verifyJwt,
} from './jwt.js';
import { type JwtKeyOptions, resolveJwtKeys } from './jwt-keys.js';
import { JWT_SENDER } from './jwt-sender.js';
import { HEADER_VALUES, NAMES } from './option-rules.js';
import {
  createSender,
  type Proof,
  type SenderOptions,
  type TestMessage,
  type WebhookSender,
} from './sender.js';
import { isConfigured, signatureHeader, testMembers } from './signature-header.js';

/** How security event tokens are fetched: RFC 8936. */
export interface PollOptions extends EgressOptions, Pick<JwksFetchOptions, 'ca'> {
  /** The `endpoint_url` of the stream. */
  readonly url: string;
  /** The Authorization header of each request, or a function that returns it, such as `async () => 'Bearer …'`. */
  readonly authorization?: string | (() => string | Promise<string>) | undefined;
  /** The most tokens of one answer; default 25. */
  readonly maxEvents?: number | undefined;
  /** Whether the transmitter may hold a request until there is an event; default `true`. */
  readonly longPolling?: boolean | undefined;
  /**
   * Time from one request to the next if the first brought no new event, in milliseconds or as a string; default `'5s'`. If the
   * transmitter held the first one for longer, the next follows at once.
   */
  readonly interval?: Duration | undefined;
  /** Maximum time of a request with its `authorization`, longer than the transmitter holds it; default `'5m'`. */
  readonly timeout?: Duration | undefined;
}

const POLL = object<PollOptions>()({
  ...EGRESS,
  ca: optional(CERTIFICATES),
  url: required(text()),
  authorization: optional(
    either(
      (value) => typeof value === 'function',
      func<() => string | Promise<string>>("async () => 'Bearer …'"),
      text("must be the whole header, such as 'Bearer …', or a function that returns it"),
    ),
  ),
  maxEvents: optional(whole(1, 1_000), 25),
  longPolling: optional(flag, true),
  interval: optional(duration(), 5_000),
  timeout: optional(duration({ isTimeout: true }), 300_000),
});

export interface SecurityEventsOptions extends JwtKeyOptions, SenderOptions {
  /** The `iss` of the stream's tokens. */
  readonly issuer: string;
  /** The `aud` of the stream, or several. */
  readonly audience: string | readonly string[];
  /** The `authorization_header` of the stream, whole, or several while it is changed. Default: none is required. */
  readonly authorization?: string | readonly string[] | undefined;
  /** Fetches the events of a stream that is not pushed: RFC 8936. */
  readonly poll?: PollOptions | undefined;
  /** How long after `iat` a token is accepted: seconds, or a string such as `'7d'`, the default. */
  readonly maxAge?: Duration | undefined;
  /** Seconds by which the transmitter's clock may be ahead, or a string such as `'60s'`; default 60. */
  readonly tolerance?: Duration | undefined;
}

const OPTIONS = object<SecurityEventsOptions>()({
  ...JWT_SENDER,
  issuer: required(text()),
  audience: required(NAMES),
  authorization: optional(HEADER_VALUES),
  poll: optional(POLL),
  maxAge: optional(seconds, 7 * 86_400),
});

const SET_TYPE = 'application/secevent+jwt';

/**
 * Security event tokens (RFC 8417) by push (RFC 8935) or poll (RFC 8936), as the Shared Signals Framework sends them: CAEP and RISC.
 *
 * The event's name is short for events of CAEP, RISC and SSF (`session-revoked`, `account-disabled`, `verification`), and otherwise
 * its URI without the scheme, with full stops for slashes. `event.data` has the members of the event, and `sub_id`. On a mounted
 * path, the answers are those of RFC 8935: `202`, or `400` with `{ err, description }`.
 *
 * ```ts
 * securityEvents({
 *   issuer: 'https://idp.example',
 *   jwksUri: 'https://idp.example/jwks.json',
 *   audience: 'https://shop.example',
 * });
 * ```
 *
 * @throws {@link WebhookConfigurationError}
 * @see https://www.rfc-editor.org/rfc/rfc8935
 */
export function securityEvents(options: SecurityEventsOptions): WebhookSender {
  const read = readOptions(OPTIONS, options, 'securityEvents');
  const { issuer, audience, tolerance, maxAge, authorization, poll } = read;
  const keys = resolveJwtKeys(read, 'securityEvents');
  const rules: JwtRules = {
    keys,
    typ: 'secevent+jwt',
    issuers: [issuer],
    audience,
    tolerance,
    maxAge,
    claims: {},
  };
  const answer = (given: AnswerFacts, incoming: IncomingWebhook): SenderAnswer | undefined =>
    given.code === 'unknown_key' && read.jwksUri !== undefined && mayHaveNewKey(incoming)
      ? undefined
      : answerOfStandard(given);
  const headers = {
    'content-type': SET_TYPE,
    accept: 'application/json',
    ...(authorization && { authorization: authorization[0]! }),
  };
  return createSender({
    name: 'security-events',
    present: [],
    hasCredentials,
    tolerance,
    maxBodyBytes: MAX_TOKEN_BYTES,
    checkKeySets: () => keys.checkKeySets(),
    diagnose: (_headers, body) => ({
      token: body && diagnosedToken(body.toString('latin1'), rules),
    }),
    event: read.event ?? (({ claims }) => shortName(eventIn(claims).uri)),
    answer,
    poll: poll && createPoll(poll, headers),
    read(headers) {
      requireAuthorization(headers, authorization);
      if (!hasCredentials(headers)) {
        throw new WebhookPayloadError('unsupported_content_type', `the body is not ${SET_TYPE}`);
      }
      return {
        async holdFor(body, { now }): Promise<Proof> {
          const { claims, issuedAt, expires } = await verifyJwt(
            body.toString('latin1'),
            rules,
            now,
          );
          const { jti, exp, sub_id } = claims;
          // Other recipients may take a token that expires for one that grants access: RFC 8417, section 2.2.
          if (exp !== undefined) throw invalidClaim('exp', 'a security event token has no exp');
          if (typeof jti !== 'string') throw invalidClaim('jti', 'jti must be a string');
          const content = { ...eventIn(claims).payload, ...(sub_id !== undefined && { sub_id }) };
          return { id: jti, issuedAt, expires: expires + tolerance, token: claims, content };
        },
      };
    },
    async sign(message) {
      const claims = { ...testClaims(rules, message), ...eventClaims(message) };
      const token = await signTest(rules, claims, 'securityEvents');
      return { headers: { ...headers }, body: Buffer.from(token), claims };
    },
  });
}

/** Milliseconds from the time of a token until its key must be in the key set. */
const KEY_PUBLISHED_WITHIN = 3_600_000;

/**
 * A key set is not fetched at once for every unknown key, so the key may be a new one: the transmitter must repeat the event. The key
 * of an old token was withdrawn, and its events would keep others from being fetched.
 */
function mayHaveNewKey({ body }: IncomingWebhook): boolean {
  // The body of a pushed event was read.
  if (body.kind !== 'bytes') return true;
  const { claims } = readTokenAnatomy(Buffer.from(body.bytes).toString('latin1'));
  const issuedAt = Number(claims?.['iat']) * 1_000;
  return issuedAt > Date.now() - KEY_PUBLISHED_WITHIN;
}

/** The token is the body, so only its type shows it. */
const hasCredentials = (headers: RequestHeaders): boolean =>
  mediaType(headers.get('content-type') ?? '') === SET_TYPE;

function requireAuthorization(
  headers: RequestHeaders,
  values: readonly string[] | undefined,
): void {
  if (values === undefined) return;
  if (isConfigured(signatureHeader(headers, 'authorization'), values)) return;
  throw new WebhookSignatureError(
    'invalid_signature',
    'the authorization header has not the value of the stream',
  );
}

function eventIn(claims: JwtClaims): {
  readonly uri: string;
  readonly payload: Readonly<Record<string, unknown>>;
} {
  const { events } = claims;
  const [first, ...others] = isObject(events) ? Object.entries(events) : [];
  if (first !== undefined && others.length === 0 && isObject(first[1])) {
    return { uri: first[0], payload: first[1] };
  }
  throw invalidClaim('events', 'events must have one event, and its value must be an object');
}

const PREFIX = 'https://schemas.openid.net/secevent/';
const SHORT = new RegExp(
  `^${PREFIX.replaceAll('.', '\\.')}(?:caep|risc|ssf|oauth)/event-type/([\\w-]+)$`,
);

function shortName(uri: string): string {
  const short = SHORT.exec(uri)?.[1];
  if (short !== undefined) return short;
  return uri
    .replace(/^[a-z]+:(?:\/\/)?/, '')
    .split(/[^\w-]+/)
    .filter((segment) => segment !== '')
    .join('.');
}

/** The events of CAEP; what is not of CAEP or SSF is of RISC. */
const CAEP: ReadonlySet<string> = new Set([
  'session-revoked',
  'token-claims-change',
  'credential-change',
  'assurance-level-change',
  'device-compliance-change',
  'session-established',
  'session-presented',
  'risk-level-change',
]);
const SSF: ReadonlySet<string> = new Set(['verification', 'stream-updated']);

function eventClaims({ event, data }: TestMessage): JwtClaims {
  if (event.includes('.')) {
    throw new WebhookConfigurationError([
      {
        path: 'securityEvents',
        message: `the URI of "${event}" is not known; a test can sign events of CAEP, RISC and SSF`,
      },
    ]);
  }
  const family = CAEP.has(event) ? 'caep' : SSF.has(event) ? 'ssf' : 'risc';
  const { sub_id, ...payload } = testMembers(data);
  return {
    exp: undefined,
    ...(sub_id !== undefined && { sub_id }),
    events: { [`${PREFIX}${family}/event-type/${event}`]: payload },
  };
}

/** Final refusals, with codes of the registry "Security Event Token Error Codes" of IANA. */
const ERRORS: Readonly<Record<string, string>> = {
  unknown_key: 'invalid_key',
  bad_signature: 'invalid_key',
  wrong_issuer: 'invalid_issuer',
  wrong_audience: 'invalid_audience',
  missing_signature: 'authentication_failed',
  malformed_signature: 'authentication_failed',
  invalid_signature: 'authentication_failed',
  invalid_token: 'invalid_request',
  token_too_large: 'invalid_request',
  token_expired: 'invalid_request',
  token_too_old: 'invalid_request',
  missing_claim: 'invalid_request',
  invalid_claim: 'invalid_request',
  invalid_payload: 'invalid_request',
  payload_too_large: 'invalid_request',
  unsupported_content_type: 'invalid_request',
  unsupported_encoding: 'invalid_request',
  replayed: 'invalid_request',
  event_unhandled: 'access_denied',
};

/** Statuses by which an application refuses an event for now: too slow, too early, too many requests. */
const TEMPORARY: ReadonlySet<number> = new Set([408, 425, 429]);

/** RFC 8935, sections 2.2 and 2.3. Anything else is repeated by the transmitter, and keeps its status. */
function answerOfStandard({ status, code, detail }: AnswerFacts): SenderAnswer | undefined {
  if (status < 300) return { status: 202 };
  const isRefusedByApplication = code === undefined && status < 500 && !TEMPORARY.has(status);
  const err = isRefusedByApplication ? 'access_denied' : ERRORS[code ?? ''];
  if (err === undefined) return undefined;
  const description = detail ?? err;
  return { status: 400, headers: { 'Content-Language': 'en' }, body: { err, description } };
}

/** Bytes of an answer besides its tokens, for each of them. */
const OVERHEAD = 1_024;

/**
 * Creates the poll of a stream.
 *
 * @param headers - of the request that a fetched token is received as. Its answer is reported: the codes of RFC 8935 are those of RFC 8936
 * @throws {@link WebhookConfigurationError} for a URL that the egress policy refuses
 */
function createPoll(
  options: Read<typeof POLL>,
  headers: Readonly<Record<string, string>>,
): EventPoll {
  const { authorization, maxEvents, longPolling, interval, timeout, ca } = options;
  const policy = new EgressPolicy(options);
  const url = checkedUrl(options, policy);
  const requestJson = createJsonClient({ policy, ca });
  return {
    url: `${url.origin}${url.pathname}`,
    interval,
    timeout,
    async fetch(settled, { signal, last = false }) {
      const document = await requestJson(url, {
        headers: {
          accept: 'application/json',
          'content-language': 'en',
          ...(authorization !== undefined && {
            authorization: await valueOf(authorization, signal),
          }),
        },
        body: JSON.stringify({
          maxEvents: last ? 0 : maxEvents,
          returnImmediately: last || !longPolling,
          ...reportOf(settled),
        }),
        signal,
        maxBytes: (maxEvents + 1) * (MAX_TOKEN_BYTES + OVERHEAD),
      });
      const { sets = {} } = isObject(document) ? document : {};
      if (!isObject(document) || !isObject(sets)) {
        throw new UnreadableAnswer('the answer has no object "sets"');
      }
      // A sender that ignores the limit gets no more work done; the rest stays with it.
      const entries = Object.entries(sets).slice(0, maxEvents);
      const events = entries.map(([id, token]) => {
        // A token that is no string is reported as an invalid one.
        const body = typeof token === 'string' ? token : '';
        return [id, fromRequestLike({ method: 'POST', url: url.href, headers, body })] as const;
      });
      return new Map(events);
    },
  };
}

function checkedUrl({ url, allowHttp }: Read<typeof POLL>, policy: EgressPolicy): URL {
  const refuse = (message: string): WebhookConfigurationError =>
    new WebhookConfigurationError([{ path: 'securityEvents.poll.url', message }]);
  if (!allowHttp && /^\s*http:/i.test(url)) {
    throw refuse('must be an https: URL; for a test, set poll.allowHttp');
  }
  try {
    return policy.checkUrl(url);
  } catch (error) {
    throw isWebhookError(error) ? refuse(error.message) : error;
  }
}

async function valueOf(
  authorization: NonNullable<Read<typeof POLL>['authorization']>,
  signal: AbortSignal,
): Promise<string> {
  if (typeof authorization === 'string') return authorization;
  try {
    const value = (async () => authorization())();
    return await untilAborted(value, signal, () => signal.reason as Error);
  } catch (cause) {
    const what = signal.aborted ? 'did not end in time' : `failed, ${reasonOf(cause)}`;
    throw new UnreadableAnswer(`the function "authorization" ${what}`, undefined, { cause });
  }
}

/** The members `ack` and `setErrs` of a request, RFC 8936, section 2.2. */
function reportOf(settled: ReadonlyMap<string, SenderAnswer>): object {
  const all = [...settled];
  const ack = all.flatMap(([id, { body }]) => (body === undefined ? [id] : []));
  const errors = all.flatMap(([id, { body }]) => (body === undefined ? [] : [[id, body] as const]));
  return {
    ...(ack.length > 0 && { ack }),
    ...(errors.length > 0 && { setErrs: Object.fromEntries(errors) }),
  };
}
