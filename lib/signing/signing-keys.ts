import { parseDuration } from '../clock/duration.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { type ConfigurationProblem, WebhookConfigurationError } from '../errors/webhook.error.js';
import { type KeyProvider, ProvidedKeys } from '../keys/key-provider.js';
import { OutageLog } from '../keys/key-log.js';
import { PublisherLog } from './publisher-log.js';
import { parseSigningKey, type SigningKeyInput } from '../token/keys/signing-key.js';
import { MAX_KEYS_TRIED } from '../token/webhook-token.constants.js';

/**
 * A list of signing keys. It may hold secrets in plain text, so it never prints them.
 *
 * A list in the options never changes, so it is its own {@link current} one.
 */
export class HeldSigningKeys {
  readonly #keys: readonly SigningKeyInput[];

  /** @param keys - copied, since the caller may change its list later */
  constructor(keys: readonly SigningKeyInput[]) {
    this.#keys = [...keys];
  }

  get keys(): readonly SigningKeyInput[] {
    return this.#keys;
  }

  get known(): this {
    return this;
  }

  current(): this {
    return this;
  }
}

/** Where the keys of a signer come from. Until they change, `known` and `current()` are the same object. */
export type SigningKeySource = HeldSigningKeys | ProvidedSigningKeys;

const MS_PER_SECOND = 1_000;

type Keys = readonly SigningKeyInput[];

const NONE = new HeldSigningKeys([]);

interface ProvidedSigningKeysOptions {
  /** The option that holds the provider, for messages: `publisher.keys`. */
  readonly path: string;
  readonly clock: WebhookClock;
  /** Returns the problems of loaded keys, with the paths `keys`, `keys[0]` and so on. */
  readonly problemsOf: (keys: unknown) => readonly ConfigurationProblem[];
}

/** The keys of a provider: loaded before anything is signed, and again when their ttl is over. */
export class ProvidedSigningKeys {
  private readonly log = new PublisherLog();
  private readonly held: ProvidedKeys<Keys, HeldSigningKeys>;

  constructor(
    provider: KeyProvider<Keys>,
    private readonly options: ProvidedSigningKeysOptions,
  ) {
    const { path, clock } = options;
    this.held = new ProvidedKeys({
      provider,
      clock,
      parse: (keys) => this.read(keys),
      // Both are checked with the other options.
      ttl: parseDuration(provider.ttl)!,
      maxStale: parseDuration(provider.maxStale)!,
      outage: new OutageLog(`The keys of ${path}`, (level, line) =>
        level === 'error' ? this.log.error(() => line) : this.log.log(() => line),
      ),
    });
  }

  /** The keys that were loaded last; never waits. */
  get known(): HeldSigningKeys {
    return this.held.latest ?? NONE;
  }

  /**
   * Loads for the first time.
   *
   * @throws {@link WebhookConfigurationError} with every problem of the keys; and whatever the provider throws
   */
  async start(): Promise<void> {
    await this.held.start();
    const now = this.options.clock.now() / MS_PER_SECOND;
    const problems = spentKeyProblems(this.known.keys, now);
    if (problems.length > 0) throw new WebhookConfigurationError(this.placed(problems));
  }

  /** Waits only if the keys that were loaded last are too old to be relied on. */
  async current(): Promise<HeldSigningKeys> {
    return this.held.current();
  }

  private read(keys: Keys): HeldSigningKeys {
    const problems = this.options.problemsOf(keys);
    if (problems.length > 0) throw new WebhookConfigurationError(this.placed(problems));
    return new HeldSigningKeys(keys);
  }

  private placed(problems: readonly ConfigurationProblem[]): ConfigurationProblem[] {
    const { path } = this.options;
    return problems.map((problem) => ({
      ...problem,
      path: problem.path.replace(/^keys/, () => path),
    }));
  }
}

/** One key of a list, as far as it concerns the others. */
interface ListedKey {
  readonly index: number;
  readonly kid: string | undefined;
  /** Seconds since the epoch. */
  readonly closes: number;
}

/**
 * Checks each key of a list, and then all of them together: receivers find a key by its `kid`, and try only a few that have
 * none. Expired keys are ignored: rotations leave them behind.
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
