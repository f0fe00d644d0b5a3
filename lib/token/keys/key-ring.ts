import type { ConfigurationFault } from '../../errors/webhook-configuration.error.js';
import { identifierRule, isIdentifier } from '../identifier.js';
import { StaticIssuerKeys } from './issuer-keys.js';
import { parseKey, type KeyInput, type KeyPolicy, type WebhookKey } from './key-material.js';
import { KeyTwins } from './key-twins.js';
import type { IssuerKeys, KeySource, TrustedIssuers } from './key-source.js';
import { DEFAULT_CLOCK_TOLERANCE, MAX_KEYS_TRIED } from '../webhook-token.constants.js';

/** An issuer that is trusted, with its keys. */
export interface TrustedIssuer {
  /** The `iss` of its tokens, compared exactly. */
  readonly issuer: string;
  /** Shared HS256 secret, or several while one replaces another. */
  readonly secret?: string | Uint8Array | readonly (string | Uint8Array)[] | undefined;
  /** Keys with a name, a time or another algorithm. */
  readonly keys?: readonly WebhookKey[] | undefined;
}

/** How keys are read and when they hold. */
export interface KeyRingOptions extends KeyPolicy {
  /** Seconds by which windows of keys open earlier; default 60. */
  readonly clockTolerance?: number | undefined;
}

/**
 * Finds keys of an issuer that are not at hand. It has its own say on what is wrong with the entry.
 *
 * @param configured - the keys that stand in the entry itself; `undefined` where there are none
 * @returns `undefined` where the entry does not ask for more
 */
export type MoreKeys = (
  entry: TrustedIssuer,
  configured: StaticIssuerKeys | undefined,
  fault: (path: string, message: string) => void,
) => IssuerKeys | undefined;

/** The keys of every trusted issuer; finding one costs the same for one issuer and for ten thousand. */
export class KeyRing implements KeySource, TrustedIssuers {
  /** The only issuer, when there is just one. */
  readonly sole: IssuerKeys | undefined;

  private constructor(private readonly issuers: ReadonlyMap<string, IssuerKeys>) {
    this.sole = issuers.size === 1 ? issuers.values().next().value : undefined;
  }

  of(issuer: string): IssuerKeys | undefined {
    return this.issuers.get(issuer);
  }

  all(): Iterable<IssuerKeys> {
    return this.issuers.values();
  }

  ring(): this {
    return this;
  }

  /**
   * The issuers none of whose tokens can be accepted any more, since every key of theirs has ended.
   *
   * @param now - seconds since the epoch
   */
  ended(now: number): string[] {
    return [...this.issuers.values()]
      .filter((keys) => keys instanceof StaticIssuerKeys && keys.hasEnded(now))
      .map(({ issuer }) => issuer);
  }

  /** Parses every key once, and says everything that is wrong with them. */
  static build(
    trusted: readonly TrustedIssuer[],
    options: KeyRingOptions,
    more: MoreKeys = nothingFetched,
  ): { ring: KeyRing; faults: ConfigurationFault[] } {
    const faults: ConfigurationFault[] = [];
    const issuers = new Map<string, IssuerKeys>();
    trusted.forEach((entry, index) => {
      const fault = (path: string, message: string): void => {
        faults.push({ path: `issuers[${index}]${path}`, message });
      };
      if (!isIdentifier(entry.issuer)) return fault('.issuer', identifierRule('issuer'));
      if (issuers.has(entry.issuer)) {
        return fault(
          '.issuer',
          'the issuer stands in the list twice: put all its keys into one entry',
        );
      }
      const inputs = keyInputs(entry);
      const configured =
        inputs.length === 0 ? undefined : configuredKeys(entry.issuer, inputs, options, fault);
      const keys = more(entry, configured, fault) ?? configured;
      if (keys === undefined) {
        fault('', 'the issuer has no key: give it a secret or keys');
      }
      issuers.set(entry.issuer, keys ?? new StaticIssuerKeys(entry.issuer, [], 0));
    });
    if (trusted.length === 0) {
      faults.push({
        path: 'issuers',
        message: 'nobody is trusted: name at least one issuer with its secret',
      });
    }
    return { ring: new KeyRing(issuers), faults };
  }
}

function configuredKeys(
  issuer: string,
  inputs: readonly { input: KeyInput; path: string }[],
  options: KeyRingOptions,
  fault: (path: string, message: string) => void,
): StaticIssuerKeys {
  const keys = new KeyTwins();
  for (const { input, path } of inputs) {
    const parsed = parseKey(input, 'verify', options);
    const message = parsed.fault ?? keys.add(parsed);
    if (message !== undefined) fault(path, message);
  }
  const { clockTolerance = DEFAULT_CLOCK_TOLERANCE } = options;
  const configured = new StaticIssuerKeys(issuer, keys.distinct, clockTolerance);
  if (configured.mostUnnamedAtOnce > MAX_KEYS_TRIED) {
    fault(
      '',
      `at most ${MAX_KEYS_TRIED} keys without kid are tried for a token: give them names, or retire some`,
    );
  }
  return configured;
}

function keyInputs(entry: TrustedIssuer): { input: KeyInput; path: string }[] {
  const { secret, keys = [] } = entry;
  const secrets = secret === undefined ? [] : Array.isArray(secret) ? secret : [secret];
  return [
    ...(secrets as (string | Uint8Array)[]).map((input, i) => ({
      input,
      path: Array.isArray(secret) ? `.secret[${i}]` : '.secret',
    })),
    ...keys.map((input, i) => ({ input, path: `.keys[${i}]` })),
  ];
}

/** The core does no I/O, so it cannot honour an address of keys, and must not pass over it in silence. */
const nothingFetched: MoreKeys = (entry, _configured, fault) => {
  if ((entry as { jwksUri?: unknown }).jwksUri !== undefined) {
    fault(
      '.jwksUri',
      'this verifier fetches nothing: use WebhookModule, or pass a KeySource in place of the list',
    );
  }
  return undefined;
};
