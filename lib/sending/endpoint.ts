import { validateHeaderName, validateHeaderValue } from 'node:http';
import type { Duration } from '../clock/duration.js';
import type { ConfigurationFaults } from '../options/configuration-faults.js';
import { unprintedHeaders } from '../options/unprinted.js';
import type { DeliveryMethod } from '../queue/webhook-delivery.interface.js';
import type { EndpointSigner } from '../signing/endpoint-signer.js';
import { identifierRule, isIdentifier } from '../token/identifier.js';
import { isHashAlgorithm } from '../token/payload-hash.js';
import { profileFault, rulesOf } from '../token/profiles/profile-choice.js';
import { isAudience } from '../token/validate-claims.js';
import {
  HASH_ALGORITHMS,
  type HashAlgorithm,
  type WebhookProfile,
} from '../token/webhook-token.constants.js';
import { EndpointCircuit } from './endpoint-circuit.js';

/** Which `jti` the attempts of one delivery carry. */
export type TokenIdScope = 'attempt' | 'delivery';

/** Settings of an endpoint; what is left out is taken from the publisher. */
export interface EndpointSettings {
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
  /** The wire format of its requests; default the publisher's. */
  readonly profile?: WebhookProfile | undefined;
  /**
   * Default `'attempt'`: a new `jti` for every attempt, because receivers mark it as used before they process the
   * event. `'delivery'` keeps it, for receivers that detect duplicates by it.
   */
  readonly jti?: TokenIdScope | undefined;
}

/** Settings of an endpoint, checked and filled; durations in milliseconds. */
export interface ResolvedEndpointSettings {
  readonly signer: EndpointSigner;
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
  fallback: ResolvedEndpointSettings,
  options: EndpointSettings,
  faults: ConfigurationFaults,
): ResolvedEndpointSettings {
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

/** The combination of wire format, method and signer that an endpoint uses. */
interface ProfileUse {
  readonly profile: WebhookProfile;
  readonly method: DeliveryMethod;
  /** Absent if the key itself is invalid. */
  readonly signer: Pick<EndpointSigner, 'algorithms'> | undefined;
}

/** @returns why an endpoint cannot use its wire format, and the remedy; `undefined` if it can */
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

/** Adds the fault of a configured endpoint. */
export function checkProfile(use: ProfileUse, faults: ConfigurationFaults): void {
  const fault = profileUseFault(use);
  if (fault !== undefined) faults.add('profile', fault);
}

/** Why an endpoint is disabled. */
export type EndpointDisabledReason =
  /** By `WebhookEndpoints.disable`. */
  | 'requested'
  /** It answered 410. */
  | 'gone'
  /** It failed every attempt for too long. */
  | 'failing';

/** Since when an endpoint is disabled (epoch milliseconds), and why. */
export interface EndpointDisabled {
  readonly at: number;
  readonly reason: EndpointDisabledReason;
}

/**
 * What this process has learnt about an endpoint. It is kept in memory only: after a restart it is learnt again, at the cost of
 * one request.
 */
export class EndpointState {
  /** Deliveries wait until then (epoch milliseconds), because the receiver is overloaded or requests time out. */
  pausedUntil = 0;

  /** Since when the application has paused it in this process, in epoch milliseconds. */
  pausedAt: number | undefined;

  /** Opens while the endpoint keeps failing. */
  circuit = new EndpointCircuit();

  /** A HEAD was inconclusive and the POST after it was acknowledged, so HEAD is not tried again. */
  needsPost = false;

  constructor(
    /** Set once this process sends nothing more. */
    public disabled?: EndpointDisabled,
  ) {}

  /** Discards what its answers have taught, when the endpoint is enabled or resumed. */
  forget(): void {
    this.pausedUntil = 0;
    this.circuit = new EndpointCircuit();
    this.needsPost = false;
  }
}

/** Where a delivery is sent, with everything that an attempt needs: an endpoint, or a URL that the caller passed. */
export interface Endpoint extends ResolvedEndpointSettings {
  /** Absent for a URL that the caller passed. */
  readonly endpointId?: string;
  /** The tenant whose events the endpoint gets; absent for events without a tenant. */
  readonly tenant?: string;
  readonly url: string;
  /** For logs: the endpoint's id or the URL's origin, never its path or query, which may hold credentials. */
  readonly label: string;
  readonly state: EndpointState;
}
