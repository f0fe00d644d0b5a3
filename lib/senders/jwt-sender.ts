import { WebhookPayloadError, WebhookTokenError } from '../errors/webhook.error.js';
import type { Duration } from '../clock/duration.js';
import { readOptions } from '../options/read-options.js';
import {
  isOptions,
  object,
  oneOf,
  optional,
  required,
  rule,
  seconds,
  text,
} from '../options/rules.js';
import { readBearerToken } from '../request/open-request.js';
import type { RequestHeaders } from '../request/webhook-scheme.js';
import { parseCompactToken, readClaims, unpadded } from '../token/decoding.js';
import { isObject } from '../token/json.js';
import { digest as digestOf, hashMismatch } from '../token/payload-hash.js';
import {
  type ClaimRule,
  type JwtClaims,
  diagnosedToken,
  type JwtRules,
  signTest,
  testClaims,
  verifyJwt,
} from './jwt.js';
import {
  JWT_KEYS,
  type JwtKeyOptions,
  type JwtKeys,
  KEY_LOOKUP,
  type KeyLookup,
  resolveJwtKeys,
} from './jwt-keys.js';
import { HEADER_NAME, NAMES } from './option-rules.js';
import {
  type ComposeTest,
  composeTest,
  createSender,
  DECLARED,
  declaredParts,
  type DeclaredSenderOptions,
  type Proof,
  SENDER,
  type SenderParts,
  toleranceSeconds,
  type WebhookSender,
} from './sender.js';
import { isSame } from '../keys/standard-webhooks-key.js';

/** Values that claims must have: the value itself, or one of a list. */
export type ExpectedClaims = Readonly<Record<string, string | boolean | readonly string[]>>;

/** The claim with the SHA-256 of the body. */
export interface JwtDigest {
  readonly claim: string;
  /** Default `hex`. Padding of base64 is ignored. */
  readonly encoding?: 'hex' | 'base64' | 'base64url' | undefined;
}

/** How a sender sends a JSON Web Token with each request. */
export interface JwtSenderOptions extends JwtKeyOptions, DeclaredSenderOptions {
  /** The header that has the token, in lower case. Default: `Authorization: Bearer <token>`. */
  readonly header?: string | undefined;
  /** The word ahead of the token in the header, such as `JWT`, or `none`. Default: `Bearer` in `authorization`, `none` in another header. */
  readonly scheme?: string | undefined;
  /** The keys, if the sender has an API that returns one by its id. */
  readonly key?: KeyLookup | undefined;
  /** Accepted `iss`. Default: any. */
  readonly issuer?: string | readonly string[] | undefined;
  /** Names of this receiver, one of which `aud` must contain. Default: a token with `aud` is rejected. */
  readonly audience?: string | readonly string[] | undefined;
  /** Further claims that the token must have, with their values. */
  readonly claims?: ExpectedClaims | undefined;
  /** The claim with the SHA-256 of the body. Without one, nothing proves that the body is the sender's. */
  readonly digest?: JwtDigest | undefined;
  /** How long after `iat` a token without `exp` is accepted: seconds, or a string such as `'5m'`. Default: `exp` is required. */
  readonly maxAge?: Duration | undefined;
  /** Seconds by which the sender's clock may differ, or a string such as `'60s'`; default 60. */
  readonly tolerance?: Duration | undefined;
  /**
   * The event's id; default: `jti`, or the digest of a token that has none and covers the body, or the digest of the body. With
   * several issuers, the default is a digest of it and `iss`.
   */
  readonly id?: DeclaredSenderOptions['id'];
}

/** The form of a sender, apart from its keys. */
export interface JwtForm extends Pick<
  SenderParts,
  'name' | 'event' | 'id' | 'data' | 'split' | 'challenge' | 'preflight' | 'keptHeaders'
> {
  readonly header?: string | undefined;
  readonly scheme?: string | undefined;
  readonly rules: Omit<JwtRules, 'keys'>;
  readonly digest?: JwtDigest | undefined;
  /** The id of the event that a token is made for, if it is not `jti`. */
  idOf?(claims: JwtClaims): unknown;
  /** Checks headers besides the token, before the body is read. */
  checkHeaders?(headers: RequestHeaders): void;
  readonly compose?: ComposeTest;
}

export const JWT_SENDER = {
  ...JWT_KEYS,
  event: SENDER.event,
  tolerance: optional(toleranceSeconds, 60),
};

export const EXPECTED_CLAIMS = optional(
  rule<ExpectedClaims>(
    (value) =>
      isOptions(value) &&
      Object.values(value).every(
        (one) =>
          typeof one === 'boolean' ||
          (Array.isArray(one) ? one : [one]).every(
            (name) => typeof name === 'string' && name !== '',
          ),
      ),
    "must be an object of claims and their values: { appid: '…' }",
  ),
  {},
);

const OPTIONS = object<JwtSenderOptions>()({
  ...JWT_SENDER,
  ...DECLARED,
  header: optional(HEADER_NAME),
  scheme: optional(
    rule<string>(
      (value) => typeof value === 'string' && /^[\w-]+$/.test(value),
      "must be a word such as 'Bearer' or 'JWT', or 'none'",
    ),
  ),
  key: KEY_LOOKUP,
  issuer: optional(NAMES),
  audience: optional(NAMES, []),
  claims: EXPECTED_CLAIMS,
  digest: optional(
    object<JwtDigest>()({
      claim: required(text()),
      encoding: optional(oneOf('hex', 'base64', 'base64url')),
    }),
  ),
  maxAge: optional(seconds),
});

/**
 * A sender that proves itself by a JSON Web Token in a header. The token is verified before the body is read.
 *
 * ```ts
 * jwtSender({
 *   name: 'acme',
 *   jwksUri: 'https://acme.example/.well-known/jwks.json',
 *   issuer: 'https://acme.example',
 *   audience: 'https://shop.example/webhooks',
 *   digest: { claim: 'request_body_sha256' },
 *   event: ({ data }) => (data as { type: string }).type,
 * });
 * ```
 *
 * @throws {@link WebhookConfigurationError}
 */
export function jwtSender(options: JwtSenderOptions): WebhookSender {
  const read = readOptions(OPTIONS, options, 'jwtSender');
  const { issuer: issuers, audience, tolerance, maxAge, claims, ...form } = read;
  return createJwtSender(resolveJwtKeys(form, 'jwtSender'), {
    ...declaredParts(form),
    rules: { issuers, audience, tolerance, maxAge, claims: claimRules(claims) },
  });
}

export function claimRules(expected: ExpectedClaims): Readonly<Record<string, ClaimRule>> {
  return Object.fromEntries(
    Object.entries(expected).map(([name, values]) => {
      const accepted: readonly unknown[] = [values].flat();
      return [name, { accepts: (value) => accepted.includes(value), example: accepted[0] }];
    }),
  );
}

export function createJwtSender(keys: JwtKeys, form: JwtForm): WebhookSender {
  const { name, header = 'authorization', digest, id, compose } = form;
  const { scheme = header === 'authorization' ? 'Bearer' : 'none' } = form;
  const tokenOf = (headers: RequestHeaders): string => tokenIn(headers, header, scheme);
  const rules: JwtRules = { ...form.rules, keys };
  return createSender({
    ...form,
    present: [header],
    tolerance: rules.tolerance,
    checkKeySets: () => keys.checkKeySets(),
    bodyVerified: digest !== undefined,
    claim: (headers) => claimed(tokenOf(headers), form),
    diagnose(headers) {
      const token = diagnosedToken(tokenOf(headers), rules);
      const { claims } = token;
      if (digest === undefined || claims === undefined) return { token };
      return {
        token,
        holdsFor: (body) =>
          isSame(boundDigest(claims, digest), inEncoding(digestOf('sha256', body), digest)),
      };
    },
    async read(headers, now) {
      const token = await verifyJwt(tokenOf(headers), rules, now);
      form.checkHeaders?.(headers);
      const { claims, issuedAt, expires } = token;
      const bound = digest && boundDigest(claims, digest);
      // A token that does not cover the body may come with several events, which have ids of their own.
      const isOfOneEvent = bound !== undefined || (id === undefined && form.split === undefined);
      const { jti = bound && token.digest } = claims;
      const signedId = form.idOf?.(claims) ?? jti;
      return {
        token: claims,
        ...(rules.issuers !== undefined &&
          rules.issuers.length > 1 && { issuer: claims['iss'] as string }),
        issuedAt,
        expires: expires + rules.tolerance,
        ...(isOfOneEvent && typeof signedId === 'string' && { id: signedId }),
        holdFor(_body, read) {
          if (bound !== undefined && !isSame(bound, inEncoding(read.digest, digest))) {
            throw hashMismatch();
          }
          return true;
        },
      };
    },
    async sign(message) {
      const { headers, body } = composeTest(message, compose);
      const claims = {
        ...testClaims(rules, message),
        ...(digest && { [digest.claim]: inEncoding(digestOf('sha256', body), digest) }),
      };
      const token = await signTest(rules, claims, name);
      const credentials = scheme === 'none' ? token : `${scheme} ${token}`;
      return { headers: { ...headers, [header]: credentials }, body, claims };
    },
  });
}

/** @throws {@link WebhookTokenError} `missing_token` or `malformed_authorization` */
function tokenIn(headers: RequestHeaders, header: string, scheme: string): string {
  if (header === 'authorization' && scheme === 'Bearer') return readBearerToken(headers);
  const [token, ...more] = headers.all(header);
  if (token === undefined || token === '') {
    throw new WebhookTokenError('missing_token', `the request has no ${header} header`);
  }
  const [, word = 'none', rest] = /^(?:([\w-]+) +)?([^ ]+)$/.exec(token) ?? [];
  // RFC 9110, section 11.1: the scheme is case-insensitive.
  const hasScheme = word.toLowerCase() === scheme.toLowerCase();
  if (more.length === 0 && rest !== undefined && hasScheme) return rest;
  const problem =
    more.length > 0 ? 'repeated' : `not ${scheme === 'none' ? '' : `${scheme} and `}a token`;
  throw new WebhookTokenError('malformed_authorization', `the ${header} header is ${problem}`);
}

function claimed(token: string, { idOf }: Pick<JwtForm, 'idOf'>): Proof {
  const claims = readClaims(parseCompactToken(token).payload, 2_000)?.value;
  if (!isObject(claims)) return {};
  const { jti, iat } = claims;
  const id = idOf?.(claims) ?? jti;
  return {
    ...(typeof id === 'string' && { id }),
    ...(typeof iat === 'number' && { issuedAt: iat }),
  };
}

/** The digest of the body that a token has, without padding. */
function boundDigest(claims: JwtClaims, { claim, encoding }: JwtDigest): string {
  const value = Object.hasOwn(claims, claim) ? claims[claim] : undefined;
  if (value === undefined) {
    throw new WebhookPayloadError('hash_required', `the token has no claim ${claim}`);
  }
  if (typeof value !== 'string') throw hashMismatch();
  return encoding === undefined || encoding === 'hex' ? value.toLowerCase() : unpadded(value);
}

/** @param digest - `sha256:<hex>` */
function inEncoding(digest: string, { encoding = 'hex' }: JwtDigest = { claim: '' }): string {
  const hex = digest.slice('sha256:'.length);
  return unpadded(Buffer.from(hex, 'hex').toString(encoding));
}
