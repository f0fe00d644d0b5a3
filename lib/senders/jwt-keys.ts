import { type KeyObject, randomInt } from 'node:crypto';
import { CallRate } from '../clock/call-rate.js';
import { MINUTE } from '../clock/duration.js';
import { inTime, SystemClock } from '../clock/webhook-clock.js';
import { WebhookStoreError } from '../errors/webhook.error.js';
import { IssuerList } from '../keys/issuer-list.js';
import { JWKS_FETCH, type JwksFetchOptions, resolveJwksFetch } from '../keys/jwks-options.js';
import { type KeyLog, reasonOf } from '../keys/key-log.js';
import { type KeySetStatus, RemoteKeySets } from '../keys/remote-key-sets.js';
import { Problems } from '../options/problems.js';
import { readOptions } from '../options/read-options.js';
import { filled, func, optional, type Read, rule, unchecked } from '../options/rules.js';
import { parseKey, type WebhookKey, type WindowedKey } from '../token/keys/key-material.js';
import type { IssuerKeys, SigningKey, VerificationKey } from '../token/keys/token-keys.js';

/** The keys of a sender that sends a JSON Web Token: at least one of these. */
export interface JwtKeyOptions {
  /** Shared HS256 secret, or several while it is rotated. */
  readonly secret?: string | Uint8Array | readonly (string | Uint8Array | undefined)[] | undefined;
  /** Public keys, or secrets with another algorithm. */
  readonly keys?: readonly WebhookKey[] | undefined;
  /** The `https:` URL of the sender's JSON Web Key Set. */
  readonly jwksUri?: string | undefined;
  /** How the key set is fetched. */
  readonly jwksFetch?: JwksFetchOptions | undefined;
  /** Private key for tests: `deliverWebhook(app, event, data, { sender })` signs with it. */
  readonly signingKey?: WebhookKey | undefined;
}

/** Asks the sender for the key with this id, within 10 s; `undefined` if there is none. A key is kept for 10 minutes. */
export type KeyLookup = (kid: string) => WebhookKey | undefined | Promise<WebhookKey | undefined>;

/** The keys that may have signed a token of a sender, and the one that signs tests. */
export interface JwtKeys extends Pick<IssuerKeys, 'candidates'> {
  readonly signer: SigningKey | undefined;
  checkKeySets(): readonly KeySetStatus[];
}

export const JWT_KEYS = {
  secret: unchecked<JwtKeyOptions['secret']>(),
  keys: optional(
    rule<readonly WebhookKey[]>(
      Array.isArray,
      'must be a list: [{ kid, alg, key }], with one key too',
    ),
  ),
  jwksUri: unchecked<string | undefined>(),
  jwksFetch: filled(JWKS_FETCH),
  signingKey: unchecked<WebhookKey | undefined>(),
};

export const KEY_LOOKUP = optional(func<KeyLookup>('async (kid) => key'));

interface ReadKeyOptions extends Omit<JwtKeyOptions, 'jwksFetch'> {
  readonly jwksFetch: Read<typeof JWKS_FETCH>;
  readonly key?: KeyLookup | undefined;
}

/**
 * @param path - the function's name, for messages
 * @param knownJwksUri - the sender's key set, unless the options have keys
 * @throws {@link WebhookConfigurationError}
 */
export function resolveJwtKeys(
  given: Partial<ReadKeyOptions>,
  path: string,
  knownJwksUri?: string,
): JwtKeys {
  const options = withKnownKeySet(given, knownJwksUri);
  const { secret, jwksUri, key, signingKey } = options;
  const problems = new Problems(path);
  const signer = signerOf(options, problems);
  const own = signingKey === undefined ? [] : verifyingHalf(signer);
  const keys = [...(options.keys ?? []), ...own];
  const isListed = secret !== undefined || jwksUri !== undefined || keys.length > 0;
  problems.require(
    isListed || key !== undefined || problems.has('signingKey'),
    'secret',
    'is undefined, and there is no other key; is the environment variable set? Otherwise set "keys" or "jwksUri"',
  );
  const listed = isListed ? listedKeys({ ...options, keys }, problems) : undefined;
  problems.throwIfAny();
  const looked = key && new LookedUpKeys(key, path);
  return {
    signer,
    checkKeySets: () => listed?.checkKeySets() ?? [],
    async candidates(kid, now, alg) {
      const known = (await listed?.candidates(kid, now, alg)) ?? [];
      const mayFit = known.some((one) => alg === undefined || one.alg === alg);
      return mayFit || looked === undefined ? known : looked.candidates(kid, now);
    },
  };
}

function withKnownKeySet(
  { jwksFetch = readOptions(JWT_KEYS.jwksFetch, {}, ''), ...given }: Partial<ReadKeyOptions>,
  knownJwksUri: string | undefined,
): ReadKeyOptions {
  const { secret, keys, jwksUri, signingKey } = given;
  const hasKeys = [secret, keys, jwksUri, signingKey].some((one) => one !== undefined);
  return { ...given, jwksFetch, jwksUri: hasKeys ? jwksUri : knownJwksUri };
}

function listedKeys(
  { secret, keys, jwksUri, jwksFetch }: ReadKeyOptions,
  problems: Problems,
): Omit<JwtKeys, 'signer'> | undefined {
  // A sender is created before the application and its logger.
  const log: KeyLog = (level, line) => {
    if (level !== 'log') process.emitWarning(line, { code: 'WEBHOOK_KEYS' });
  };
  const remote = new RemoteKeySets(resolveJwksFetch(jwksFetch), new SystemClock(), log);
  const issuer = 'sender';
  const { list, problems: found } = IssuerList.read(
    [{ issuer, secret, keys: keys?.length === 0 ? undefined : keys, jwksUri }],
    {},
    remote,
  );
  for (const { path, message } of found) {
    problems.add(path.replace(/^issuers\[0\]\.?/, ''), message);
  }
  const listed = list.ring.of(issuer);
  return (
    listed && {
      candidates: (kid, now, alg) => listed.candidates(kid, now, alg),
      checkKeySets: () => remote.check(),
    }
  );
}

function signerOf(
  { secret, signingKey }: ReadKeyOptions,
  problems: Problems,
): SigningKey | undefined {
  if (signingKey !== undefined) {
    const parsed = parseKey(signingKey, 'sign');
    return parsed.problem === undefined ? parsed.key : problems.add('signingKey', parsed.problem);
  }
  const [first] = [secret].flat() as readonly (string | Uint8Array | undefined)[];
  // A problem of the secret is reported where it verifies.
  return first === undefined ? undefined : parseKey(first, 'sign').key;
}

/** The public key, so that what it signs is verified too. */
function verifyingHalf(signer: SigningKey | undefined): WebhookKey[] {
  const publicKey: KeyObject | undefined = signer?.publicKey?.();
  return publicKey === undefined ? [] : [{ kid: signer!.kid, alg: signer!.alg, key: publicKey }];
}

/** Milliseconds for which a key is kept. */
const KEPT = 600_000;
const MAX_KEPT = 100;
/** Lookups of unknown keys together on average, and of each known key at most. */
const LOOKUPS_PER_MINUTE = 30;
/** Lookups of unknown keys together at most. */
const MAX_LOOKUPS_PER_MINUTE = 60;
/** Milliseconds that a lookup may take: requests that name the key wait for it. */
const LOOKUP_TIMEOUT = 10_000;

/** A key that was asked for; `undefined` if there is none. */
interface Lookup {
  readonly since: number;
  readonly found: Promise<WindowedKey<VerificationKey> | undefined>;
}

/** Keys that are asked for one by one. */
class LookedUpKeys {
  private readonly clock = new SystemClock();
  private readonly rate = new CallRate(this.clock);
  private readonly known = new RecentLookups();
  /** Those under way, and those that found nothing: apart, so that invented names displace no key. */
  private readonly others = new RecentLookups();
  private readonly unknown = new UnknownKeys();

  /** @param path - the sender's function, for warnings */
  constructor(
    private readonly lookup: KeyLookup,
    private readonly path: string,
  ) {}

  /** @throws {@link WebhookStoreError} `keys_unavailable` */
  async candidates(kid: string | undefined, now: number): Promise<readonly VerificationKey[]> {
    if (kid === undefined) return [];
    const found = await this.find(kid);
    if (found === undefined) return [];
    const { key, window } = found;
    return window === undefined || (window.opens <= now && now < window.closes) ? [key] : [];
  }

  private async find(kid: string): Lookup['found'] {
    const now = this.clock.now();
    const recent = this.others.recent(kid, now) ?? this.known.recent(kid, now);
    if (recent !== undefined) return recent.found;
    if (!this.mayAsk(kid, now)) {
      throw unavailable('too many unknown keys were named in this minute');
    }
    const lookup: Lookup = { since: now, found: this.ask(kid) };
    this.others.set(kid, lookup);
    try {
      const found = await lookup.found;
      if (found === undefined) this.known.delete(kid);
      else {
        this.known.set(kid, lookup);
        this.others.delete(kid);
      }
      return found;
    } catch (error) {
      this.others.delete(kid);
      throw error;
    }
  }

  private mayAsk(kid: string, now: number): boolean {
    if (this.known.has(kid)) {
      return this.rate.waitAfter(`known ${kid}`, LOOKUPS_PER_MINUTE) === undefined;
    }
    if (this.unknown.draw(now)) return true;
    if (this.rate.waitAfter('warning', 1) === undefined) {
      process.emitWarning(
        `${this.path}: requests name too many unknown keys, so some are not looked up, and their requests are rejected with 503. ` +
          'The names are probably invented: limit the rate of requests to this receiver. A new key of the sender is found after some retries.',
        { code: 'WEBHOOK_KEYS' },
      );
    }
    return false;
  }

  private async ask(kid: string): Lookup['found'] {
    let given: WebhookKey | undefined;
    try {
      given = await inTime(
        this.clock,
        LOOKUP_TIMEOUT,
        () => this.lookup(kid),
        () => unavailable('no answer within 10 s'),
      );
    } catch (error) {
      throw unavailable(`the function "key" failed, ${reasonOf(error)}`, { cause: error });
    }
    if (given === undefined) return undefined;
    const parsed = parseKey({ ...given, kid }, 'verify');
    if (parsed.problem === undefined) return parsed;
    throw unavailable(`the function "key" returned an invalid key: ${parsed.problem}`);
  }
}

/**
 * Decides at random which unknown keys are looked up. Anyone can invent key ids, and before the lookup a new key of the sender looks
 * like one of them: if the first ones of a minute were looked up, invented ones could always come first.
 *
 * Of n keys named in each minute, every one has a chance of 30 in n, at any time and at each retry. The count of the minute before
 * keeps a burst at the start of a minute from taking all lookups.
 */
class UnknownKeys {
  private since = -Infinity;
  private named = 0;
  private namedBefore = 0;
  private drawn = 0;

  /** Whether to look up a key that is named now. */
  draw(now: number): boolean {
    const age = Math.abs(now - this.since);
    if (age >= MINUTE) {
      this.namedBefore = age < 2 * MINUTE ? this.named : 0;
      this.since = now;
      this.named = this.drawn = 0;
    }
    this.named++;
    if (this.drawn === MAX_LOOKUPS_PER_MINUTE) return false;
    const isDrawn = randomInt(Math.max(this.named, this.namedBefore)) < LOOKUPS_PER_MINUTE;
    if (isDrawn) this.drawn++;
    return isDrawn;
  }
}

/** The last lookups, by the id of the key. */
class RecentLookups extends Map<string, Lookup> {
  /** The lookup of a key, unless it is too old. */
  recent(kid: string, now: number): Lookup | undefined {
    const lookup = this.get(kid);
    return lookup !== undefined && Math.abs(now - lookup.since) < KEPT ? lookup : undefined;
  }

  override set(kid: string, lookup: Lookup): this {
    this.delete(kid);
    if (this.size >= MAX_KEPT) this.delete(this.keys().next().value!);
    return super.set(kid, lookup);
  }
}

function unavailable(reason: string, options?: ErrorOptions): WebhookStoreError {
  return new WebhookStoreError('keys_unavailable', reason, options);
}
