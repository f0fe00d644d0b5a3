import { inTime, type WebhookClock } from '../clock/webhook-clock.js';
import { WebhookStoreError } from '../errors/webhook.error.js';
import type { MaybePromise } from '../token/maybe-promise.js';
import type { KeyProvider } from './key-provider.js';
import type { TroubleLog } from './trouble-log.js';

/** Milliseconds a provider may take; longer is as if it had failed. */
const LOAD_TIMEOUT = 10_000;
/** Milliseconds after a failure in which nobody's request sets off another load. */
const PAUSE_AFTER_FAILURE = 5_000;

interface ProvidedKeysOptions<Keys, Value> {
  readonly provider: KeyProvider<Keys>;
  /**
   * Makes of what was loaded what is then used.
   *
   * @throws WebhookConfigurationError for keys with a fault
   */
  readonly read: (keys: Keys) => Value;
  readonly clock: WebhookClock;
  /** The provider's durations in milliseconds. */
  readonly ttl: number;
  readonly maxStale: number;
  readonly log: TroubleLog;
}

/**
 * What a provider gave last, and when to ask it again. Nothing runs by itself: whoever needs keys
 * sets the loading off, one for all.
 */
export class ProvidedKeys<Keys, Value> {
  private held: { readonly value: Value; readonly since: number } | undefined;
  private loading: Promise<Value> | undefined;
  private failedAt = -Infinity;
  /** Loads are counted, so that one that was overtaken by a later one changes nothing. */
  private begun = 0;
  private applied = 0;

  constructor(private readonly options: ProvidedKeysOptions<Keys, Value>) {
    options.provider.subscribe(async () => void (await this.load()));
  }

  /** What is held, however old; `undefined` before the first load. */
  get latest(): Value | undefined {
    return this.held?.value;
  }

  /** Loads for the first time. @throws what the provider or the reading of its keys threw */
  async start(): Promise<void> {
    await this.load();
  }

  /**
   * @returns at once unless what is held is older than twice its ttl
   * @throws {@link WebhookStoreError} `keys_unavailable` where nothing can be relied on
   */
  current(): MaybePromise<Value> {
    const { held } = this;
    const { ttl } = this.options;
    const age = this.age();
    // A clock that was set back makes an answer from the future, whose age nobody knows.
    if (held !== undefined && age >= 0 && age <= ttl) return held.value;
    if (this.pausing()) return this.kept();
    // What a refresh has brought meanwhile holds, also where this load fails.
    const loaded = this.loadOnce().catch(() => this.kept());
    if (held === undefined || age > Math.min(2 * ttl, this.options.maxStale)) return loaded;
    loaded.catch(() => undefined);
    return held.value;
  }

  /** What is held, unless it is too old to be relied on. */
  private kept(): Value {
    if (this.held !== undefined && this.age() <= this.options.maxStale) return this.held.value;
    throw new WebhookStoreError('keys_unavailable', 'the keys cannot be had now: try again later');
  }

  /** Milliseconds. */
  private age(): number {
    return this.held === undefined ? Infinity : this.options.clock.now() - this.held.since;
  }

  private pausing(): boolean {
    const since = this.options.clock.now() - this.failedAt;
    return since >= 0 && since < PAUSE_AFTER_FAILURE;
  }

  private loadOnce(): Promise<Value> {
    this.loading ??= this.load().finally(() => (this.loading = undefined));
    return this.loading;
  }

  private async load(): Promise<Value> {
    const { provider, read, clock, log } = this.options;
    const turn = ++this.begun;
    const since = clock.now();
    try {
      const given = await inTime(clock, LOAD_TIMEOUT, () => provider.load(), tooLong);
      // Not even read: to read a list of issuers changes what is known of their key sets.
      if (turn < this.applied && this.held !== undefined) return this.held.value;
      const value = read(given);
      this.applied = turn;
      // As old as the question: what changed after it may not be in the answer.
      this.held = { value, since };
      this.failedAt = -Infinity;
      log.ended();
      return value;
    } catch (error) {
      if (turn < this.applied) throw error;
      this.failedAt = clock.now();
      // At start-up, and to whoever asked for the refresh, the error itself says it.
      if (this.held !== undefined) log.trouble(error);
      throw error;
    }
  }
}

function tooLong(): WebhookStoreError {
  return new WebhookStoreError(
    'keys_unavailable',
    `load() did not settle within ${LOAD_TIMEOUT} ms`,
  );
}
