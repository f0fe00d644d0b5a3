import { parseDuration } from '../clock/duration.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { type ConfigurationFault, WebhookConfigurationError } from '../errors/webhook.error.js';
import type { KeyProvider } from '../keys/key-provider.js';
import { ProvidedKeys } from '../keys/provided-keys.js';
import { OutageLog } from '../keys/key-log.js';
import { PublisherLog } from './publisher-log.js';
import { spentKeyFaults } from './signing-key-list.js';
import type { SigningKeyInput } from '../token/keys/signing-key.js';
import type { MaybePromise } from '../token/maybe-promise.js';

/**
 * Keys that are held as long as the publisher lives. They are as they were given, secrets in plain text among
 * them: whoever prints the publisher, or what it is made of, must not print them.
 */
export class HeldSigningKeys {
  readonly #keys: readonly SigningKeyInput[];

  /** @param keys - copied: whoever gave the list may go on changing it */
  constructor(keys: readonly SigningKeyInput[]) {
    this.#keys = [...keys];
  }

  get keys(): readonly SigningKeyInput[] {
    return this.#keys;
  }
}

/** The keys of one option, as they are now. While they do not change, they are the same object. */
export interface SigningKeySource {
  /** What was known last; for what must not wait. */
  readonly known: HeldSigningKeys;
  /** @returns at once, unless what is known is too old to be relied on */
  current(): MaybePromise<HeldSigningKeys>;
}

/** Keys that the options name one by one. */
export function listedKeys(keys: readonly SigningKeyInput[]): SigningKeySource {
  const known = new HeldSigningKeys(keys);
  return { known, current: () => known };
}

const MS_PER_SECOND = 1_000;

type Keys = readonly SigningKeyInput[];

const NONE = new HeldSigningKeys([]);

interface ProvidedSigningKeysOptions {
  /** Where the provider stands, for messages: `publisher.keys`. */
  readonly path: string;
  readonly clock: WebhookClock;
  /** Says what is wrong with keys that were loaded; paths are `keys`, `keys[0]` and so on. */
  readonly faultsOf: (keys: unknown) => readonly ConfigurationFault[];
}

/** The keys of a provider: loaded once before anything is signed, and anew as they grow old. */
export class ProvidedSigningKeys implements SigningKeySource {
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

  get known(): HeldSigningKeys {
    return this.held.latest ?? NONE;
  }

  /**
   * Loads for the first time.
   *
   * @throws {@link WebhookConfigurationError} with every fault of the keys; and whatever the provider throws
   */
  async start(): Promise<void> {
    await this.held.start();
    const now = this.options.clock.now() / MS_PER_SECOND;
    const faults = spentKeyFaults(this.known.keys, now);
    if (faults.length > 0) throw new WebhookConfigurationError(this.placed(faults));
  }

  current(): MaybePromise<HeldSigningKeys> {
    return this.held.current();
  }

  private read(keys: Keys): HeldSigningKeys {
    const faults = this.options.faultsOf(keys);
    if (faults.length > 0) throw new WebhookConfigurationError(this.placed(faults));
    return new HeldSigningKeys(keys);
  }

  private placed(faults: readonly ConfigurationFault[]): ConfigurationFault[] {
    const { path } = this.options;
    return faults.map((fault) => ({ ...fault, path: fault.path.replace(/^keys/, () => path) }));
  }
}
