import { hash } from 'node:crypto';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import {
  type CompactToken,
  invalidToken,
  parseCompactToken,
  readClaims,
  readHeader,
  soundClaims,
} from '../token/decoding.js';
import { candidatesFor, keyThatSigned } from '../token/token-verifier.js';
import {
  invalidClaim,
  numericDate,
  claimError,
  requirePresent,
  requireUnexpired,
  validateAudience,
} from '../token/validate-claims.js';
import type { SignatureAlgorithm } from '../token/webhook-token.constants.js';
import { readTokenAnatomy } from '../token/webhook-receipt.js';
import type { TokenDiagnosis } from '../request/webhook-scheme.js';
import type { JwtKeys } from './jwt-keys.js';

export type JwtClaims = Readonly<Record<string, unknown>>;

export interface ClaimRule {
  accepts(value: unknown): boolean;
  /** An accepted value, for tests. */
  readonly example: unknown;
}

/** What the tokens of a sender are checked against. */
export interface JwtRules {
  readonly keys: JwtKeys;
  /** The `typ` that the header must have; default: `JWT`, or none. */
  readonly typ?: string | undefined;
  /** Accepted `iss`; without them, the token may have any. */
  readonly issuers?: readonly string[] | undefined;
  /** Names of this receiver; if empty, the token must have no `aud`. */
  readonly audience: readonly string[];
  /** Seconds by which two clocks may differ. */
  readonly tolerance: number;
  /** Seconds after `iat` for which a token without `exp` is accepted; without it, `exp` is required. */
  readonly maxAge?: number | undefined;
  readonly claims: Readonly<Record<string, ClaimRule>>;
}

export interface VerifiedJwt {
  readonly claims: JwtClaims;
  /** Identifies the token, whatever encoding its signature has: that of ECDSA is not unique. */
  readonly digest: string;
  readonly issuedAt: number | undefined;
  /** When it stops being accepted, without tolerance. */
  readonly expires: number;
}

type Times = Pick<VerifiedJwt, 'issuedAt' | 'expires'>;

const MAX_MEMBERS = 2_000;

/**
 * Verifies a JSON Web Token: form, header, signature, then claims.
 *
 * @param now - seconds since the epoch
 * @throws {@link WebhookTokenError}; {@link WebhookStoreError} `keys_unavailable`
 */
export async function verifyJwt(token: string, rules: JwtRules, now: number): Promise<VerifiedJwt> {
  const compact = parseCompactToken(token);
  const { alg, kid } = readCheckedHeader(compact, rules.typ);
  const candidates = candidatesFor({ alg }, await rules.keys.candidates(kid, now, alg));
  if ((await keyThatSigned(compact, candidates)) === undefined) throw invalidToken('bad_signature');
  const claims = soundClaims(readClaims(compact.payload, MAX_MEMBERS), MAX_MEMBERS);
  const times = checkClaims(claims, rules, now);
  return { claims, ...times, digest: `sha256:${hash('sha256', compact.signingInput)}` };
}

function readCheckedHeader(
  compact: CompactToken,
  typ: string | undefined,
): { readonly alg: SignatureAlgorithm; readonly kid: string | undefined } {
  const { header, problem } = readHeader(compact.header);
  if (header === undefined || problem !== undefined || !isOfType(header['typ'], typ)) {
    throw invalidToken();
  }
  return { alg: header['alg'] as SignatureAlgorithm, kid: header['kid'] as string | undefined };
}

/** A token for another purpose must not pass for one of these: RFC 8725, section 3.11. */
function isOfType(typ: unknown, expected: string | undefined): boolean {
  if (typ === undefined) return expected === undefined;
  if (typeof typ !== 'string') return false;
  // RFC 7515, section 4.1.9: the prefix may be left out.
  return typ.toLowerCase().replace(/^application\//, '') === (expected ?? 'jwt');
}

function checkClaims(claims: JwtClaims, rules: JwtRules, now: number): Times {
  const { issuers } = rules;
  const { iss, aud } = claims;
  if (issuers !== undefined && !(issuers as readonly unknown[]).includes(iss)) {
    throw claimError('wrong_issuer', 'iss', 'the issuer of the token is not the expected one');
  }
  const times = checkTimes(claims, rules, now);
  validateAudience(aud, rules.audience);
  for (const [name, { accepts }] of Object.entries(rules.claims)) {
    const value = Object.hasOwn(claims, name) ? claims[name] : undefined;
    requirePresent(name, value);
    if (!accepts(value)) throw invalidClaim(name, `${name} has not the expected value`);
  }
  return times;
}

/** Longer than the tokens of any known sender: what is handled is remembered until its token ends. */
const MAX_LIFETIME = 2 * 86_400;

function checkTimes(claims: JwtClaims, { tolerance, maxAge }: JwtRules, now: number): Times {
  const time = (name: string): number | undefined =>
    claims[name] === undefined ? undefined : numericDate(name, claims[name]);
  const [iat, nbf, exp] = [time('iat'), time('nbf'), time('exp')];
  if (maxAge === undefined) requirePresent('exp', exp);
  if (exp === undefined) requirePresent('iat', iat);
  const expires = exp ?? iat! + maxAge!;
  requireUnexpired(now, expires + tolerance);
  for (const [name, start] of Object.entries({ nbf, iat })) {
    if (start !== undefined && start > now + tolerance) {
      throw claimError('token_not_yet_valid', name, 'the token is not valid yet');
    }
  }
  if (expires > now + tolerance + Math.max(MAX_LIFETIME, maxAge ?? 0)) {
    throw claimError('token_too_old', 'exp', 'the lifetime of the token is longer than two days');
  }
  return { issuedAt: iat, expires };
}

/** Seconds for which the token of a test is valid. */
const TEST_LIFETIME = 300;

export function testClaims(rules: JwtRules, { id, now }: { id: string; now: number }): JwtClaims {
  const iat = Math.floor(now / 1_000);
  const [iss] = rules.issuers ?? [];
  const [aud] = rules.audience;
  const examples = Object.entries(rules.claims).map(([name, { example }]) => [name, example]);
  return {
    ...(iss !== undefined && { iss }),
    ...(aud !== undefined && { aud }),
    iat,
    ...(rules.maxAge === undefined && { exp: iat + TEST_LIFETIME }),
    ...(Object.fromEntries(examples) as JwtClaims),
    jti: id,
  };
}

/**
 * Signs the token of a test.
 *
 * @param name - the sender's, for messages
 * @throws {@link WebhookConfigurationError} if there is no key that signs
 */
export async function signTest(
  { keys: { signer }, typ = 'JWT' }: Pick<JwtRules, 'keys' | 'typ'>,
  claims: JwtClaims,
  name: string,
): Promise<string> {
  if (signer === undefined) {
    throw new WebhookConfigurationError([
      {
        path: `${name}.signingKey`,
        message: 'is required to sign a test: pass the private key to the sender of the test',
      },
    ]);
  }
  const { alg, kid } = signer;
  return signer.sign(JSON.stringify({ alg, typ, kid }), JSON.stringify(claims));
}

/** The parts of a token that is not verified, and what it is checked against. */
export function diagnosedToken(token: string, { issuers, audience }: JwtRules): TokenDiagnosis {
  const { header, claims } = readTokenAnatomy(token);
  return { header, claims, issuers, audience };
}
