import type { ConfigurationProblem } from '../errors/webhook.error.js';
import { parseSigningKey, type SigningKeyInput } from '../token/keys/signing-key.js';
import { MAX_KEYS_TRIED } from '../token/webhook-token.constants.js';

/** One key of a list, as far as it concerns the others. */
interface ListedKey {
  readonly index: number;
  readonly kid: string | undefined;
  /** Seconds since the epoch. */
  readonly closes: number;
}

/**
 * Checks each key of a list, and then what receivers make of them together: they find a key by its `kid`, and try
 * only a few that have none. Keys whose time is over count for nothing there: a rotation leaves them behind.
 *
 * @param now - seconds since the epoch
 * @returns problems with the paths `keys`, `keys[0]` and so on
 */
export function signingKeyProblems(keys: unknown, now: number): ConfigurationProblem[] {
  if (!Array.isArray(keys)) return [{ path: 'keys', message: 'must be a list of keys' }];
  const { listed, problems } = parseList(keys);
  const ahead = listed.filter(({ closes }) => now < closes);
  return [...problems, ...sharedNameProblems(ahead), ...namelessProblems(ahead)];
}

/**
 * Refuses a list at start-up from which no key can sign, now or later. While the application runs, a provider may return one,
 * to revoke every key.
 *
 * @param now - seconds since the epoch
 */
export function spentKeyProblems(
  keys: readonly SigningKeyInput[],
  now: number,
): ConfigurationProblem[] {
  if (keys.length === 0) return [{ path: 'keys', message: 'must contain at least one key' }];
  const { listed, problems } = parseList(keys);
  if (problems.length > 0 || listed.some(({ closes }) => now < closes)) return [];
  return [
    {
      path: 'keys',
      message: 'the notAfter of every key has passed: add a key that is valid now or will be',
    },
  ];
}

function parseList(keys: readonly SigningKeyInput[]): {
  readonly listed: readonly ListedKey[];
  readonly problems: readonly ConfigurationProblem[];
} {
  const problems: ConfigurationProblem[] = [];
  const listed = keys.flatMap((input, index): ListedKey[] => {
    const { key, window, problem } = parseSigningKey(input);
    if (key !== undefined) return [{ index, kid: key.kid, closes: window?.closes ?? Infinity }];
    problems.push({ path: `keys[${index}]`, message: problem });
    return [];
  });
  return { listed, problems };
}

function sharedNameProblems(keys: readonly ListedKey[]): ConfigurationProblem[] {
  const names = keys.map(({ kid }) => kid);
  return keys
    .filter(({ kid }, place) => kid !== undefined && names.indexOf(kid) < place)
    .map(({ index }) => ({
      path: `keys[${index}]`,
      message: 'its kid names another key of the list too: give each its own',
    }));
}

function namelessProblems(keys: readonly ListedKey[]): ConfigurationProblem[] {
  const nameless = keys.filter(({ kid }) => kid === undefined);
  if (nameless.length <= MAX_KEYS_TRIED) return [];
  return [
    {
      path: 'keys',
      message: `${nameless.length} of them have no kid, and receivers try at most ${MAX_KEYS_TRIED} for a token: give each a kid`,
    },
  ];
}
