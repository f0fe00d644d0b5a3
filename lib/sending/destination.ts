import { validateHeaderName, validateHeaderValue } from 'node:http';
import type { Duration } from '../clock/duration.js';
import type { ConfigurationFaults } from '../options/configuration-faults.js';
import { unprintedHeaders } from '../options/unprinted.js';
import type { DeliveryMethod } from '../queue/webhook-delivery.interface.js';
import type { DestinationSigner } from '../signing/destination-signer.js';
import { identifierRule, isIdentifier } from '../token/identifier.js';
import { isHashAlgorithm } from '../token/payload-hash.js';
import { profileFault, rulesOf } from '../token/profiles/profile-choice.js';
import { isAudience } from '../token/validate-claims.js';
import {
  HASH_ALGORITHMS,
  type HashAlgorithm,
  type WebhookProfile,
} from '../token/webhook-token.constants.js';

/** Which `jti` the attempts of one delivery carry. */
export type TokenIdScope = 'attempt' | 'delivery';

/** Settings of a destination; what is left out is taken from the publisher. */
export interface DestinationOptions {
  /** The `aud` of its tokens. */
  readonly audience?: string | readonly string[] | undefined;
  /** The `sub` of its tokens. */
  readonly subject?: string | undefined;
  /** Headers of every request; none that frame or authenticate it. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Default the publisher's. */
  readonly method?: DeliveryMethod | undefined;
  /** For one attempt, at most 15 minutes; default the publisher's. */
  readonly timeout?: Duration | undefined;
  /** Digest of a POST's body; default the publisher's. */
  readonly hash?: HashAlgorithm | undefined;
  /** The wire format it is sent; default the publisher's. */
  readonly profile?: WebhookProfile | undefined;
  /**
   * Default `'attempt'`: a new `jti` for every attempt, because receivers mark it as used before they process the
   * event. `'delivery'` keeps it, for receivers that detect duplicates by it.
   */
  readonly jti?: TokenIdScope | undefined;
}

/** How requests to a destination are made; durations in milliseconds. */
export interface ResolvedDestination {
  readonly signer: DestinationSigner;
  /** If absent, the default of the wire format. */
  readonly hash?: HashAlgorithm;
  readonly profile: WebhookProfile;
  readonly method: DeliveryMethod;
  readonly timeout: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly audience?: string | readonly string[];
  readonly subject?: string;
  readonly jti: TokenIdScope;
}

/** A slower receiver occupies a slot of the queue that others need; it should answer first and work later. */
const LONGEST_TIMEOUT = '15m';

const METHODS: ReadonlySet<unknown> = new Set(['auto', 'HEAD', 'POST']);

/** Applies an endpoint's own settings over others. Faults are collected; wrong values are still returned. */
export function applySettings(
  fallback: ResolvedDestination,
  options: DestinationOptions,
  faults: ConfigurationFaults,
): ResolvedDestination {
  const { hash, profile, method, jti, headers, audience, subject, timeout } = options;
  faults.require(
    hash === undefined || isHashAlgorithm(hash),
    'hash',
    `must be one of ${HASH_ALGORITHMS.join(', ')}`,
  );
  faults.require(
    method === undefined || METHODS.has(method),
    'method',
    "must be 'auto', 'HEAD' or 'POST'",
  );
  faults.require(
    jti === undefined || jti === 'attempt' || jti === 'delivery',
    'jti',
    "must be 'attempt' or 'delivery'",
  );
  faults.require(
    audience === undefined || isAudience(audience),
    'audience',
    'must be a string, or a list of strings, each of 1 to 255 characters',
  );
  faults.require(
    subject === undefined || isIdentifier(subject),
    'subject',
    identifierRule('subject'),
  );
  for (const [name, value] of Object.entries(headers ?? {})) {
    const fault = headerFault(name, value);
    if (fault !== undefined) faults.add(`headers[${JSON.stringify(name)}]`, fault);
  }
  const chosenHash = hash ?? fallback.hash;
  return {
    signer: fallback.signer,
    profile: profile ?? fallback.profile,
    method: method ?? fallback.method,
    timeout: faults.duration('timeout', timeout, fallback.timeout, LONGEST_TIMEOUT),
    headers: headers === undefined ? fallback.headers : unprintedHeaders(headers),
    jti: jti ?? fallback.jti,
    ...(chosenHash !== undefined && { hash: chosenHash }),
    ...(audience !== undefined && { audience }),
    ...(subject !== undefined && { subject }),
  };
}

/**
 * They frame or authenticate the request, or apply to one connection. A second value for any of them enables request
 * smuggling.
 */
const REFUSED = new Set([
  'authorization',
  'connection',
  'content-encoding',
  'content-length',
  'content-type',
  'expect',
  'host',
  'keep-alive',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** @returns what is wrong with a configured header, and the remedy; `undefined` if nothing is */
function headerFault(name: string, value: unknown): string | undefined {
  if (REFUSED.has(name.toLowerCase())) {
    return 'is set by the library, which frames and authenticates the request; remove it';
  }
  try {
    validateHeaderName(name);
  } catch {
    return 'is not a valid header name';
  }
  if (typeof value !== 'string') return 'must be a string';
  try {
    validateHeaderValue(name, value);
    return undefined;
  } catch {
    return 'contains a character that a header cannot carry';
  }
}

/** The combination of wire format, method and signer that a destination uses. */
interface ProfileUse {
  readonly profile: WebhookProfile;
  readonly method: DeliveryMethod;
  /** Absent if the key itself is invalid. */
  readonly signer: Pick<DestinationSigner, 'algorithms'> | undefined;
}

/** @returns why a destination cannot use its wire format, and the remedy; `undefined` if it can */
export function profileUseFault({ profile, method, signer }: ProfileUse): string | undefined {
  // Without a key, the name of the profile is still checked.
  for (const algorithm of signer?.algorithms ?? [undefined]) {
    const fault = profileFault(profile, algorithm);
    if (fault !== undefined) return fault;
  }
  return method === 'HEAD' && !rulesOf(profile).methods.has('HEAD')
    ? `${profile} has no HEAD: leave the method 'auto', or choose another profile`
    : undefined;
}

/** Adds the fault of a configured destination. */
export function checkProfile(use: ProfileUse, faults: ConfigurationFaults): void {
  const fault = profileUseFault(use);
  if (fault !== undefined) faults.add('profile', fault);
}
