import { DAY, type Duration } from '../clock/duration.js';
import { LONGEST_TIMEOUT } from '../clock/webhook-clock.js';
import { EGRESS, type EgressOptions, EgressPolicy } from '../egress/egress-policy.js';
import { CERTIFICATES, type EgressTlsOptions } from '../egress/guarded-agent.js';
import { duration, object, optional, type Read } from '../options/rules.js';

/**
 * How the key sets of issuers (`jwksUri`) are fetched. Durations are milliseconds or strings such as `'30s'`.
 *
 * If others can write the addresses, for example in a database, leave `allowHttp` and `allowPrivateNetworks` off.
 */
export interface JwksFetchOptions extends EgressOptions {
  /** Maximum time of one fetch; default `'5s'`. */
  readonly timeout?: Duration | undefined;
  /** Minimum time between two fetches of one set, successful or not; at most `maxAge`. Default `'30s'`. */
  readonly cooldown?: Duration | undefined;
  /** How long a fetched set is fresh; default `'10m'`. */
  readonly maxAge?: Duration | undefined;
  /** How long the last fetched set is used if it cannot be fetched again; default `'24h'`. */
  readonly maxStale?: Duration | undefined;
  /** Certificate authorities to trust instead of Node's, as PEM. */
  readonly ca?: EgressTlsOptions['ca'];
}

const DEFAULT_COOLDOWN = 30_000;
const DEFAULT_MAX_STALE = DAY;

export const JWKS_FETCH = object<JwksFetchOptions>()(
  {
    ...EGRESS,
    timeout: optional(duration({ isTimeout: true }), 5_000),
    cooldown: optional(duration()),
    maxAge: optional(duration(), 600_000),
    maxStale: optional(duration()),
    ca: optional(CERTIFICATES),
  },
  {
    form: 'an object: { timeout, cooldown, maxAge, maxStale, ca }',
    across({ cooldown, maxAge, maxStale }, at) {
      if (maxStale !== undefined && maxStale < maxAge) {
        at.add('maxStale', 'must be at least maxAge');
      }
      if (cooldown !== undefined && cooldown > maxAge) {
        at.add('cooldown', 'must be at most maxAge, or a key set could not be refreshed in time');
      }
    },
  },
);

/** How key sets are fetched. Durations are milliseconds. */
export type ResolvedJwksOptions = ReturnType<typeof resolveJwksFetch>;

/** Adds the defaults that depend on other options. */
export function resolveJwksFetch(options: Read<typeof JWKS_FETCH>) {
  const { allowHttp, maxAge, ca, timeout } = options;
  return {
    policy: new EgressPolicy(options),
    allowHttp,
    maxAge,
    ca,
    // Timers take whole milliseconds and no more than this many.
    timeout: Math.ceil(Math.min(timeout, LONGEST_TIMEOUT)),
    cooldown: options.cooldown ?? Math.min(DEFAULT_COOLDOWN, maxAge),
    maxStale: options.maxStale ?? Math.max(DEFAULT_MAX_STALE, maxAge),
  };
}
