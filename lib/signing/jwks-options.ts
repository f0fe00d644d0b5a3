import type { Duration } from '../clock/duration.js';
import type { ConfigurationFaults } from '../options/configuration-faults.js';
import { checkShape, isOptions, type OptionShape } from '../options/option-shape.js';
import type { SigningResolver } from './signing.resolver.js';
import { keySetFaults } from './webhook.jwks.js';

/** Where the publisher's public keys are served. */
export interface WebhookJwksOptions {
  /** Outside the global prefix; default `'/.well-known/webhook-keys'`. */
  readonly path?: string | undefined;
  /** How long receivers and caches may keep it; default `'5m'`. */
  readonly maxAge?: Duration | undefined;
}

/** The options, checked and filled. */
export interface ResolvedJwks {
  readonly path: string;
  /** Milliseconds. */
  readonly maxAge: number;
}

const DEFAULT_JWKS_PATH = '/.well-known/webhook-keys';

/** Milliseconds. */
const DEFAULT_JWKS_MAX_AGE = 5 * 60_000;

type JwksOption = boolean | WebhookJwksOptions | undefined;

const JWKS: OptionShape<WebhookJwksOptions> = { path: undefined, maxAge: undefined };

/** Segments of unreserved characters (RFC 3986, section 2.3), which every router reads alike. */
const PLAIN_PATH = /^(?:\/[\w.~-]+)+$/;

/** Whether a JWKS is served. */
export function isServed(option: JwksOption): boolean {
  return option !== undefined && option !== false;
}

/** Checks and fills the options, once the signers are known; faults are collected, not thrown. */
export function resolveJwks(
  option: JwksOption,
  signing: SigningResolver,
  faults: ConfigurationFaults,
): ResolvedJwks | undefined {
  if (!isServed(option)) return undefined;
  if (option !== true && !isOptions(option)) {
    faults.add('jwks', 'must be true, or an object: { path, maxAge }');
    return undefined;
  }
  const at = faults.below('jwks');
  const { path = DEFAULT_JWKS_PATH, maxAge } = option === true ? {} : checkShape(option, JWKS, at);
  at.require(
    typeof path === 'string' && PLAIN_PATH.test(path),
    'path',
    "must be a path of plain segments, such as '/.well-known/webhook-keys'",
  );
  // Invalid keys, and keys that are not loaded yet, would be reported as missing.
  const isKnown = !signing.hasFaults && signing.provided.length === 0;
  if (isKnown) {
    for (const message of keySetFaults(signing.sources.map(({ known }) => known))) {
      faults.add('jwks', message);
    }
  }
  return { path, maxAge: at.duration('maxAge', maxAge, DEFAULT_JWKS_MAX_AGE) };
}
