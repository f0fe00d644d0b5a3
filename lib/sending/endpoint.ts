import { validateHeaderName, validateHeaderValue } from 'node:http';
import type { Duration } from '../clock/duration.js';
import { Pause } from '../clock/pause.js';
import { CONNECTION_HEADERS } from '../egress/guarded-agent.js';
import {
  between,
  duration,
  flag,
  isOptions,
  object,
  oneOf,
  optional,
  type Read,
  required,
  type Rule,
  rule,
  whole,
} from '../options/rules.js';
import { unprintedHeaders } from '../options/unprinted.js';
import { LEAST_RATE } from '../queue/lane-limits.js';
import type { DeliveryLimits, DeliveryMethod } from '../queue/webhook-delivery.js';
import type { EndpointSigner } from '../signing/endpoint-signer.js';
import type { StandardWebhooksSigner } from '../signing/standard-webhooks-signer.js';
import { identifier } from '../token/identifier.js';
import { isAudience } from '../token/validate-claims.js';
import {
  type HashAlgorithm,
  type SentProfile,
  HASH_ALGORITHMS,
} from '../token/webhook-token.constants.js';
import { EndpointCircuit } from './endpoint-circuit.js';
import type { EndpointCredentials } from './endpoint-credentials.js';
import {
  type RetryPolicy,
  applyRetry,
  ENDPOINT_RETRY,
  type EndpointRetryOptions,
} from './retry-policy.js';
import { SENT_PROFILE } from './sent-profile.js';

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
  /**
   * The wire format of its requests; default the publisher's. `'standard-webhooks'` needs a secret `whsec_…`;
   * `['webhook-token', 'standard-webhooks']` signs each request both ways.
   */
  readonly profile?: SentProfile | undefined;
  /**
   * With the signature of Standard Webhooks: whether the body is `{ type, timestamp, data }`; default `true`. With `false` it is the data
   * alone, and only a token names the event.
   */
  readonly envelope?: boolean | undefined;
  /**
   * Default `'attempt'`: a new `jti` for every attempt, because receivers mark it as used before they process the
   * event. `'delivery'` keeps it, for receivers that detect duplicates by it.
   */
  readonly jti?: 'attempt' | 'delivery' | undefined;
  /**
   * What a dead delivery does to the later ones of its ordering key: `'skip'` (default) lets them continue, `'block'` lets them
   * wait until it is redelivered or skipped.
   */
  readonly onDead?: 'skip' | 'block' | undefined;
  /** Default the publisher's. */
  readonly retry?: EndpointRetryOptions | undefined;
  /** Attempts that run at once, in all processes together, from 1 to 1000; default: only the queue's own limits. */
  readonly concurrency?: number | undefined;
  /** Attempts that start in a second, in all processes together; default: unlimited. */
  readonly rateLimit?: EndpointRateLimit | undefined;
}

/** A token bucket: how often attempts to an endpoint start. */
export interface EndpointRateLimit {
  /** On average; from `1 / 86400`, which is one a day, to 10000. `0.1` is one in ten seconds. */
  readonly perSecond: number;
  /** How many may start at once after a rest, from 1 to 10000; default `perSecond`, rounded up. */
  readonly burst?: number | undefined;
}

/** Headers that are never printed, because their values may be credentials. */
const HEADERS: Rule<Readonly<Record<string, string>>> = (value, at, name) => {
  if (!isOptions(value)) return at.add(name, 'must be an object: { name: value }') as never;
  for (const [header, one] of Object.entries(value)) {
    const problem = headerProblem(header, one);
    if (problem !== undefined) at.add(`${name}[${JSON.stringify(header)}]`, problem);
  }
  return unprintedHeaders(value as Record<string, string>);
};

/** Attempts in a second. */
export const RATE = between(
  LEAST_RATE,
  10_000,
  'of attempts from 1 / 86400, which is one a day, to 10000',
);

const RATE_LIMIT = object<EndpointRateLimit>()(
  {
    perSecond: required(RATE, 'is missing'),
    burst: optional(whole(1, 10_000)),
  },
  { form: 'an object: { perSecond, burst }' },
);

/** The rules of {@link EndpointSettings}, for the options that extend them. */
export const ENDPOINT_SETTINGS = {
  audience: optional(
    rule<string | readonly string[]>(
      isAudience,
      'must be a string, or a list of strings, each of 1 to 255 characters',
    ),
  ),
  subject: optional(identifier('subject')),
  headers: optional(HEADERS),
  method: optional(oneOf('auto', 'HEAD', 'POST')),
  // A slower receiver occupies a slot of the queue that others need; it should answer first and work later.
  timeout: optional(duration({ max: '15m', isTimeout: true })),
  hash: optional(oneOf(...HASH_ALGORITHMS)),
  profile: optional(SENT_PROFILE),
  envelope: optional(flag),
  jti: optional(oneOf('attempt', 'delivery')),
  onDead: optional(oneOf('skip', 'block')),
  retry: optional(ENDPOINT_RETRY),
  concurrency: optional(whole(1, 1_000)),
  rateLimit: optional(RATE_LIMIT),
};

export const SETTING_NAMES = Object.keys(ENDPOINT_SETTINGS) as (keyof typeof ENDPOINT_SETTINGS)[];

type ReadSettings = {
  readonly [Name in Exclude<keyof EndpointSettings, 'retry'>]?: Read<
    (typeof ENDPOINT_SETTINGS)[Name & keyof typeof ENDPOINT_SETTINGS]
  >;
} & { readonly retry?: Parameters<typeof applyRetry>[1] };

/** Applies an endpoint's own settings over others. */
export function applySettings(
  fallback: ResolvedEndpointSettings,
  own: ReadSettings,
): ResolvedEndpointSettings {
  const set = SETTING_NAMES.filter((name) => own[name] !== undefined);
  const given = Object.fromEntries(set.map((name) => [name, own[name]]));
  return { ...fallback, ...given, retry: applyRetry(fallback.retry, own.retry) };
}

/**
 * Headers that frame or authenticate the request, or apply to one connection. A second value for any of them enables request
 * smuggling.
 */
export const RESERVED_HEADERS: ReadonlySet<string> = new Set([
  ...CONNECTION_HEADERS,
  'authorization',
  'content-encoding',
  'content-type',
  'proxy-authorization',
  'webhook-id',
  'webhook-signature',
  'webhook-timestamp',
]);

/** @returns what is wrong with a configured header, and the remedy; `undefined` if nothing is */
export function headerProblem(name: string, value: unknown): string | undefined {
  if (RESERVED_HEADERS.has(name.toLowerCase())) {
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
  /**
   * When it was created, or last enabled, resumed or given another URL, in epoch milliseconds; absent if it is not managed.
   */
  readonly enabledAt?: number | undefined;
  /**
   * Returns the same object on every call; absent if it requires none. A function, so that no log shows them.
   *
   * @throws {@link WebhookStoreError} `sealed_secret_unreadable`
   */
  readonly credentials?: (() => EndpointCredentials) | undefined;
}

/** Settings of an endpoint, checked and filled; durations in milliseconds. */
export interface ResolvedEndpointSettings {
  readonly signer: EndpointSigner;
  /** If absent, the default of the wire format. */
  readonly hash?: HashAlgorithm | undefined;
  readonly profile: SentProfile;
  /** Absent if it has no secret of Standard Webhooks. */
  readonly standardWebhooks?: StandardWebhooksSigner | undefined;
  readonly envelope: boolean;
  readonly method: DeliveryMethod;
  readonly timeout: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly audience?: string | readonly string[] | undefined;
  readonly subject?: string | undefined;
  readonly jti: 'attempt' | 'delivery';
  readonly onDead: 'skip' | 'block';
  readonly retry: RetryPolicy;
  readonly concurrency?: number | undefined;
  readonly rateLimit?: EndpointRateLimit | undefined;
}

/** The limits of an endpoint in the form that queues take; without a limit, `concurrency` and `perSecond` are absent. */
export function limitsOf({ concurrency, rateLimit, enabledAt }: Endpoint): DeliveryLimits {
  if (rateLimit === undefined) return { concurrency, since: enabledAt };
  const { perSecond, burst = Math.ceil(perSecond) } = rateLimit;
  return { concurrency, perSecond, burst, since: enabledAt };
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

/** The format of acknowledged requests; times in epoch milliseconds. */
interface AcknowledgedFormat {
  readonly profile: SentProfile;
  /** Of the first request that was acknowledged in this format, with no other format after it. */
  readonly since: number;
  /** Of the last one. */
  readonly at: number;
}

/**
 * What this process has learnt about an endpoint. It is kept in memory only: after a restart it is learnt again, at the cost of
 * one request.
 */
export class EndpointState {
  /** Deliveries wait until it ends: the receiver has asked to wait, or its answers time out. */
  overload = new Pause();

  /** Since when the application has paused it in this process, in epoch milliseconds. */
  pausedAt: number | undefined;

  /** Opens while the endpoint keeps failing. */
  circuit = new EndpointCircuit();

  /** A HEAD was inconclusive and the POST after it was acknowledged, so HEAD is not tried again. */
  needsPost = false;

  /** How the last acknowledged request was signed. */
  acknowledged: AcknowledgedFormat | undefined;

  constructor(
    /** Set once this process sends nothing more. */
    public disabled?: EndpointDisabled,
  ) {}

  /** @param at - epoch milliseconds */
  noteAcknowledged(profile: SentProfile, at: number): void {
    const before = this.acknowledged;
    const isSame = JSON.stringify(before?.profile) === JSON.stringify(profile);
    this.acknowledged = { profile, since: isSame ? before!.since : at, at };
  }

  /** Discards what its answers have taught, when the endpoint is enabled or resumed. */
  forget(): void {
    this.overload = new Pause();
    this.circuit = new EndpointCircuit();
    this.needsPost = false;
  }
}
