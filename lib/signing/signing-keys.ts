import { parseDuration, SECOND } from '../clock/duration.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { type KeyProvider, ProvidedKeys } from '../keys/key-provider.js';
import { OutageLog } from '../keys/key-log.js';
import { Problems } from '../options/problems.js';
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

type Keys = readonly SigningKeyInput[];

const NONE = new HeldSigningKeys([]);

interface ProvidedSigningKeysOptions {
  /** Where the option `keys` holds the provider, for messages: `publisher`. */
  readonly path: string;
  readonly clock: WebhookClock;
  /** Checks loaded keys, as {@link checkSigningKeys}. */
  readonly check: (keys: unknown, at: Problems) => void;
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
      outage: new OutageLog(`The keys of ${new Problems(path).at('keys')}`, (level, line) =>
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
    const problems = new Problems(this.options.path);
    checkSpentKeys(this.known.keys, this.options.clock.now() / SECOND, problems);
    problems.throwIfAny();
  }

  /** Waits only if the keys that were loaded last are too old to be relied on. */
  async current(): Promise<HeldSigningKeys> {
    return this.held.current();
  }

  private read(keys: Keys): HeldSigningKeys {
    const problems = new Problems(this.options.path);
    this.options.check(keys, problems);
    problems.throwIfAny();
    return new HeldSigningKeys(keys);
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
 */
export function checkSigningKeys(keys: unknown, now: number, at: Problems): void {
  if (!Array.isArray(keys)) return at.add('keys', 'must be a list of keys');
  const ahead = parseList(keys, at).filter(({ closes }) => now < closes);
  const names = ahead.map(({ kid }) => kid);
  ahead.forEach(({ index, kid }, place) => {
    at.require(
      kid === undefined || names.indexOf(kid) === place,
      `keys[${index}]`,
      'its kid names another key of the list too: give each its own',
    );
  });
  const nameless = names.filter((kid) => kid === undefined).length;
  at.require(
    nameless <= MAX_KEYS_TRIED,
    'keys',
    `${nameless} of them have no kid, and receivers try at most ${MAX_KEYS_TRIED} for a token: give each a kid`,
  );
}

/**
 * Refuses a list at start-up from which no key can sign, now or later. While the application runs, a provider may return one,
 * to revoke every key.
 *
 * @param keys - without other problems
 * @param now - seconds since the epoch
 */
export function checkSpentKeys(keys: Keys, now: number, at: Problems): void {
  if (keys.length === 0) return at.add('keys', 'must contain at least one key');
  const isAhead = parseList(keys, at).some(({ closes }) => now < closes);
  at.require(
    isAhead,
    'keys',
    'the notAfter of every key has passed: add a key that is valid now or will be',
  );
}

function parseList(keys: Keys, at: Problems): ListedKey[] {
  return keys.flatMap((input, index): ListedKey[] => {
    const { key, window, problem } = parseSigningKey(input);
    if (key !== undefined) return [{ index, kid: key.kid, closes: window?.closes ?? Infinity }];
    at.add(`keys[${index}]`, problem);
    return [];
  });
}
