import type { ConfigurationFault } from '../errors/webhook-configuration.error.js';
import { identifierRule, isIdentifier } from './identifier.js';
import { parseKey, type KeyInput, type KeyPolicy, type WebhookKey } from './key-material.js';
import type { IssuerKeys, KeySource } from './key-source.js';
import type { VerificationKey } from './token-key.js';
import { MAX_KEYS_TRIED } from './webhook-token.constants.js';

/** An issuer that is trusted, with its keys. */
export interface TrustedIssuer {
  /** The `iss` of its tokens, compared exactly. */
  readonly issuer: string;
  /** Shared HS256 secret, or several while one replaces another. */
  readonly secret?: string | Uint8Array | readonly (string | Uint8Array)[] | undefined;
  /** Keys with a name or another algorithm. */
  readonly keys?: readonly WebhookKey[] | undefined;
}

/** The keys of one issuer that stand in the options. */
export class StaticIssuerKeys implements IssuerKeys {
  private readonly named = new Map<string, VerificationKey[]>();
  private readonly unnamed: VerificationKey[] = [];
  private readonly all: VerificationKey[] = [];

  constructor(readonly issuer: string) {}

  add(key: VerificationKey): void {
    this.all.push(key);
    if (key.kid === undefined) this.unnamed.push(key);
    else this.named.set(key.kid, [...(this.named.get(key.kid) ?? []), key]);
  }

  /**
   * The keys a token may have been signed with: those its `kid` names and those without a name;
   * without `kid` all of them, unless they are so many that trying them would be a lever.
   */
  candidates(kid: string | undefined): readonly VerificationKey[] {
    if (kid === undefined) return this.all.length <= MAX_KEYS_TRIED ? this.all : [];
    const named = this.named.get(kid);
    if (named === undefined) return this.unnamed;
    return this.unnamed.length === 0 ? named : [...named, ...this.unnamed];
  }

  known(): readonly VerificationKey[] {
    return this.all;
  }

  get unnamedCount(): number {
    return this.unnamed.length;
  }
}

/** The keys of every trusted issuer; finding one costs the same for one issuer and for ten thousand. */
export class KeyRing implements KeySource {
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

  /** Parses every key once, and says everything that is wrong with them. */
  static build(
    trusted: readonly TrustedIssuer[],
    policy: KeyPolicy,
  ): { ring: KeyRing; faults: ConfigurationFault[] } {
    const faults: ConfigurationFault[] = [];
    const issuers = new Map<string, IssuerKeys>();
    trusted.forEach((entry, index) => {
      const path = `issuers[${index}]`;
      if (!isIdentifier(entry.issuer)) {
        faults.push({ path: `${path}.issuer`, message: identifierRule('issuer') });
        return;
      }
      if (issuers.has(entry.issuer)) {
        faults.push({
          path: `${path}.issuer`,
          message: 'the issuer stands in the list twice: put all its keys into one entry',
        });
        return;
      }
      const keys = new StaticIssuerKeys(entry.issuer);
      issuers.set(entry.issuer, keys);
      addKeys(keys, entry, path, policy, faults);
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

function addKeys(
  keys: StaticIssuerKeys,
  entry: TrustedIssuer,
  path: string,
  policy: KeyPolicy,
  faults: ConfigurationFault[],
): void {
  const inputs = keyInputs(entry, path);
  if (inputs.length === 0) {
    faults.push({ path, message: 'the issuer has no key: give it a secret or keys' });
  }
  for (const { input, path: keyPath } of inputs) {
    const parsed = parseKey(input, 'verify', policy);
    if (parsed.fault !== undefined) faults.push({ path: keyPath, message: parsed.fault });
    else keys.add(parsed.key);
  }
  if (keys.unnamedCount > MAX_KEYS_TRIED) {
    faults.push({
      path,
      message: `at most ${MAX_KEYS_TRIED} keys without kid are tried for a token: give them names, or retire some`,
    });
  }
}

function keyInputs(entry: TrustedIssuer, path: string): { input: KeyInput; path: string }[] {
  const { secret, keys = [] } = entry;
  const secrets = secret === undefined ? [] : Array.isArray(secret) ? secret : [secret];
  return [
    ...(secrets as (string | Uint8Array)[]).map((input, i) => ({
      input,
      path: Array.isArray(secret) ? `${path}.secret[${i}]` : `${path}.secret`,
    })),
    ...keys.map((input, i) => ({ input, path: `${path}.keys[${i}]` })),
  ];
}
