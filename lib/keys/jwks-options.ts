import { X509Certificate } from 'node:crypto';
import type { Duration } from '../clock/duration.js';
import { EgressPolicy, type EgressOptions } from '../egress/egress-policy.js';
import type { EgressTlsOptions } from '../egress/guarded-agent.js';
import type { ConfigurationFaults } from '../options/configuration-faults.js';

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

/** Checked options with defaults. Durations are milliseconds. */
export interface ResolvedJwksOptions {
  readonly policy: EgressPolicy;
  readonly allowHttp: boolean;
  readonly timeout: number;
  readonly cooldown: number;
  readonly maxAge: number;
  readonly maxStale: number;
  readonly ca: EgressTlsOptions['ca'];
}

const DEFAULT_TIMEOUT = 5_000;
const DEFAULT_COOLDOWN = 30_000;
const DEFAULT_MAX_AGE = 600_000;
const DEFAULT_MAX_STALE = 86_400_000;

/** Checks the options and adds defaults. After a fault it continues, so that all faults are found. */
export function resolveJwksOptions(
  options: JwksFetchOptions,
  faults: ConfigurationFaults,
): ResolvedJwksOptions {
  const wrong = EgressPolicy.faults(options);
  for (const { path, message } of wrong) faults.add(path, message);
  const maxAge = faults.duration('maxAge', options.maxAge, DEFAULT_MAX_AGE);
  const maxStale = faults.duration(
    'maxStale',
    options.maxStale,
    Math.max(DEFAULT_MAX_STALE, maxAge),
  );
  faults.require(maxStale >= maxAge, 'maxStale', 'must be at least maxAge');
  const cooldown = faults.duration(
    'cooldown',
    options.cooldown,
    Math.min(DEFAULT_COOLDOWN, maxAge),
  );
  faults.require(
    cooldown <= maxAge,
    'cooldown',
    'must be at most maxAge, or a key set could not be refreshed in time',
  );
  checkCertificates(options.ca, faults);
  return {
    policy: new EgressPolicy(wrong.length > 0 ? {} : options),
    allowHttp: options.allowHttp === true,
    // Timers take whole milliseconds and no more than this many.
    timeout: Math.ceil(
      Math.min(faults.duration('timeout', options.timeout, DEFAULT_TIMEOUT), 2 ** 31 - 1),
    ),
    cooldown,
    maxAge,
    maxStale,
    ca: options.ca,
  };
}

function checkCertificates(ca: JwksFetchOptions['ca'], faults: ConfigurationFaults): void {
  if (ca === undefined) return;
  try {
    // Node ignores certificates that it cannot read, and then trusts none.
    [ca].flat().forEach((certificate) => new X509Certificate(certificate));
  } catch {
    faults.add('ca', 'cannot be read: pass certificates as PEM');
  }
}
