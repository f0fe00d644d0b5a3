import type { ConfigurationProblem } from '../../errors/webhook.error.js';
import { identifierRule, isIdentifier } from '../identifier.js';
import { DEFAULT_CLOCK_TOLERANCE, MAX_KEYS_TRIED } from '../webhook-token.constants.js';
import {
  type KeyInput,
  type KeyPolicy,
  parseKey,
  type WebhookKey,
  type WindowedKey,
} from './key-material.js';
import {
  type IssuerKeys,
  KeyRing,
  StaticIssuerKeys,
  type HmacKey,
  type JoseKey,
} from './token-keys.js';

/** A trusted issuer with its keys. */
export interface TrustedIssuer {
  /** The `iss` of its tokens, compared exactly. */
  readonly issuer: string;
  /** Shared HS256 secret, or several during a rotation. */
  readonly secret?: string | Uint8Array | readonly (string | Uint8Array | undefined)[] | undefined;
  /** Keys with a kid, a period of use or another algorithm. */
  readonly keys?: readonly WebhookKey[] | undefined;
}

/** How keys are parsed and how long they are valid. */
export interface KeyRingOptions extends KeyPolicy {
  /** Seconds by which a key may be used before its `notBefore`; default 60. */
  readonly clockTolerance?: number | undefined;
  /** Accepts an empty list, which trusts nobody; default false. */
  readonly allowEmpty?: boolean | undefined;
}

/**
 * Adds keys from elsewhere, such as a JWKS, to those in an issuer's entry, and checks the options for them.
 *
 * @param configured - the keys in the entry itself; `undefined` if it has none
 * @returns `undefined` if the entry has no other keys
 */
export type MoreKeys = (
  entry: TrustedIssuer,
  configured: StaticIssuerKeys | undefined,
  problem: (path: string, message: string) => void,
) => IssuerKeys | undefined;

/** Parses every key of the trusted issuers and collects all problems. */
export function buildKeyRing(
  trusted: readonly TrustedIssuer[],
  options: KeyRingOptions,
  more: MoreKeys = refuseJwksUri,
): { ring: KeyRing; problems: ConfigurationProblem[] } {
  const problems: ConfigurationProblem[] = [];
  const issuers = new Map<string, IssuerKeys>();
  trusted.forEach((entry, index) => {
    const problem = (path: string, message: string): void => {
      problems.push({ path: `issuers[${index}]${path}`, message });
    };
    if (!isIdentifier(entry.issuer)) return problem('.issuer', identifierRule('issuer'));
    if (issuers.has(entry.issuer)) {
      return problem(
        '.issuer',
        `"${entry.issuer}" is listed twice: put all its keys into one entry`,
      );
    }
    const inputs = keyInputs(entry);
    const configured =
      inputs.length === 0 ? undefined : configuredKeys(entry.issuer, inputs, options, problem);
    const keys = more(entry, configured, problem) ?? configured;
    if (keys === undefined) {
      problem('', 'the issuer has no key: set "secret" or "keys"');
    }
    issuers.set(entry.issuer, keys ?? new StaticIssuerKeys(entry.issuer, [], 0));
  });
  if (trusted.length === 0 && options.allowEmpty !== true) {
    problems.push({
      path: 'issuers',
      message:
        'add at least one issuer with its secret: without one, every webhook would be rejected',
    });
  }
  return { ring: new KeyRing(issuers), problems };
}

function configuredKeys(
  issuer: string,
  inputs: readonly { input: KeyInput; path: string }[],
  options: KeyRingOptions,
  problem: (path: string, message: string) => void,
): StaticIssuerKeys {
  const keys = new DistinctKeys();
  for (const { input, path } of inputs) {
    const parsed = parseKey(input, 'verify', options);
    const message = parsed.problem ?? keys.add(parsed);
    if (message !== undefined) problem(path, message);
  }
  const { clockTolerance = DEFAULT_CLOCK_TOLERANCE } = options;
  const configured = new StaticIssuerKeys(issuer, keys.entries, clockTolerance);
  if (configured.maxUnnamedAtOnce > MAX_KEYS_TRIED) {
    problem(
      '',
      `more than ${MAX_KEYS_TRIED} keys without kid are valid at once: set a kid for each, or remove some`,
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

/** The core does no I/O. A `jwksUri` must not be ignored silently, so it is refused. */
const refuseJwksUri: MoreKeys = (entry, _configured, problem) => {
  if ((entry as { jwksUri?: unknown }).jwksUri !== undefined) {
    problem(
      '.jwksUri',
      'createTokenVerifier does not fetch keys: use WebhookModule, or pass the keys of the set in "keys"',
    );
  }
  return undefined;
};

type Entry = WindowedKey<HmacKey | JoseKey>;

/** Collects the keys of one issuer without repetitions, and refuses contradictory ones. */
class DistinctKeys {
  readonly entries: Entry[] = [];

  /**
   * Adds a key unless it is there already: between rotations, the variables of the old and the new secret may have the
   * same value.
   *
   * @returns the problem and its remedy, or `undefined`
   */
  add(added: Entry): string | undefined {
    const copies = this.entries.filter(({ key }) => key.holdsSame(added.key));
    const otherAlgorithm = copies.find(({ key }) => key.alg !== added.key.alg)?.key.alg;
    if (otherAlgorithm !== undefined) {
      return `the same key is listed for ${otherAlgorithm}: use a key for one algorithm only (RFC 8725, section 3.1)`;
    }
    // Otherwise one entry would keep a key alive that the other revokes.
    if (!copies.every((copy) => sameWindow(copy, added))) {
      return 'the same key is listed with another notBefore or notAfter: remove one of the two';
    }
    if (copies.some(({ key }) => key.kid === added.key.kid)) return undefined;
    const { kid } = added.key;
    if (kid !== undefined && this.entries.some(({ key }) => key.kid === kid)) {
      return 'another key of the issuer has this kid: give each key its own';
    }
    this.entries.push(added);
    return undefined;
  }
}

function sameWindow({ window: one }: Entry, { window: other }: Entry): boolean {
  return one?.opens === other?.opens && one?.closes === other?.closes;
}
