import { type Duration, MINUTE } from '../clock/duration.js';
import type { Problems } from '../options/problems.js';
import { duration, object, optional, type Read, type Rule, rule } from '../options/rules.js';
import type { SigningResolver } from './signing.resolver.js';
import { keySetProblems } from './webhook.jwks.js';

/** Where the publisher's public keys are served. */
export interface WebhookJwksOptions {
  /** Outside the global prefix; default `'/.well-known/webhook-keys'`. */
  readonly path?: string | undefined;
  /** How long receivers and caches may keep it; default `'5m'`. */
  readonly maxAge?: Duration | undefined;
}

/** Segments of unreserved characters (RFC 3986, section 2.3), which every router reads alike. */
const PLAIN_PATH = /^(?:\/[\w.~-]+)+$/;

const JWKS_OPTIONS = object<WebhookJwksOptions>()(
  {
    path: optional(
      rule<string>(
        (path) => typeof path === 'string' && PLAIN_PATH.test(path),
        "must be a path of plain segments, such as '/.well-known/webhook-keys'",
      ),
      '/.well-known/webhook-keys',
    ),
    maxAge: optional(duration(), 5 * MINUTE),
  },
  { form: 'true, or an object: { path, maxAge }' },
);

/** Where and how long; durations in milliseconds. */
export type ResolvedJwks = Read<typeof JWKS_OPTIONS>;

/** Reads the option `jwks`; `undefined` if no JWKS is served. */
export const JWKS: Rule<ResolvedJwks | undefined> = (value, at, name) =>
  value === undefined || value === false
    ? undefined
    : JWKS_OPTIONS(value === true ? {} : value, at, name);

/** Checks that there are keys to serve, once the signers are known. */
export function checkJwks(signing: SigningResolver, at: Problems): void {
  // Invalid keys, and keys that are not loaded yet, would be reported as missing.
  if (signing.hasProblems || signing.provided.length > 0) return;
  const keys = signing.sources.map(({ known }) => known);
  for (const message of keySetProblems(keys)) at.add('jwks', message);
}
