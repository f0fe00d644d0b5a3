import { createHash, type KeyObject } from 'node:crypto';
import { SECOND } from '../clock/duration.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { type ConfigurationProblem, WebhookConfigurationError } from '../errors/webhook.error.js';
import type { HeldSigningKeys, SigningKeySource } from './signing-keys.js';
import { HMAC_ALGORITHMS } from '../token/keys/token-keys.js';
import type { Parsed } from '../token/keys/key-form.js';
import { parseSigningKey, type SigningKeyInput } from '../token/keys/signing-key.js';
import type { SignatureAlgorithm } from '../token/webhook-token.constants.js';

type KeyLists = readonly HeldSigningKeys[];

/**
 * The public keys that receivers need now: all keys that have not expired. A key in several lists is listed once.
 *
 * @param now - seconds since the epoch
 */
function keySet(lists: KeyLists, now: number): PublicJwk[] {
  const keys = new Map<string, PublicJwk>();
  for (const { jwk, closes } of lists.flatMap(({ keys: held }) => publishedKeys(held))) {
    if (now < closes) keys.set(JSON.stringify(jwk), jwk);
  }
  return [...keys.values()];
}

/** Returns the problems of all lists together, with remedies. */
export function keySetProblems(lists: KeyLists): string[] {
  const keys = keySet(lists, -Infinity);
  if (keys.length === 0) {
    return [
      'there is no public key to serve, since shared secrets have none; add a key pair to the publisher, or leave jwks out',
    ];
  }
  const names = new Set(keys.map(({ kid }) => kid));
  return names.size === keys.length
    ? []
    : ['two different keys of the publisher have the same kid; give each its own'];
}

/** A JSON Web Key Set, RFC 7517 section 5, of public keys. */
export interface WebhookKeySet {
  /** RFC 7517: these members and no others. */
  readonly keys: readonly {
    readonly kty: string;
    readonly crv?: string;
    readonly x?: string;
    readonly y?: string;
    readonly n?: string;
    readonly e?: string;
    readonly kid?: string;
    readonly alg: SignatureAlgorithm;
    readonly use: 'sig';
  }[];
}

type PublicJwk = WebhookKeySet['keys'][number];

/**
 * The public keys of the publisher's own issuer, with which receivers verify without a secret. The option `jwks` serves them;
 * inject this class to serve them elsewhere.
 */
export class WebhookJwks {
  constructor(
    private readonly sources: readonly SigningKeySource[],
    private readonly clock: WebhookClock,
  ) {}

  /**
   * The current key set. It never contains shared secrets or private keys.
   *
   * @throws {@link WebhookConfigurationError} for a key pair without a `kid` or a signer without a `publicKey`; if the
   *   option `jwks` is set, start-up fails for them
   */
  async document(): Promise<WebhookKeySet> {
    const lists = await Promise.all(this.sources.map(async (source) => source.current()));
    const problems = lists.flatMap(({ keys }) => publicationProblems(keys));
    if (problems.length > 0) throw new WebhookConfigurationError(problems);
    return { keys: keySet(lists, this.clock.now() / SECOND) };
  }
}

/** A public key, and until when it is published. */
interface PublishedKey {
  readonly jwk: PublicJwk;
  /** Seconds since the epoch. */
  readonly closes: number;
}

/** A published key, or why it cannot be published; neither for a shared secret. */
type Publication = Parsed<{ readonly published?: PublishedKey | undefined }>;

/** The public keys of the key pairs in a list; shared secrets have none. */
export function publishedKeys(keys: readonly SigningKeyInput[]): PublishedKey[] {
  return publicationsOf(keys).flatMap(({ published }) => published ?? []);
}

/**
 * Checks that the key pairs of a list can be published.
 *
 * @returns problems with remedies, at the paths `keys[0]` and so on
 */
export function publicationProblems(keys: readonly SigningKeyInput[]): ConfigurationProblem[] {
  return publicationsOf(keys).flatMap(({ problem }, index) => {
    return problem === undefined ? [] : [{ path: `keys[${index}]`, message: problem }];
  });
}

/** Cached for each list: parsing a key is slow, and anyone may request the key set at any rate. */
const known = new WeakMap<readonly SigningKeyInput[], readonly Publication[]>();

function publicationsOf(keys: readonly SigningKeyInput[]): readonly Publication[] {
  let publications = known.get(keys);
  if (publications === undefined) {
    publications = keys.map(publish);
    known.set(keys, publications);
  }
  return publications;
}

function publish(input: SigningKeyInput): Publication {
  const { key, window } = parseSigningKey(input);
  // An invalid key is reported where it signs.
  if (key === undefined || Object.hasOwn(HMAC_ALGORITHMS, key.alg)) return {};
  const { alg, kid } = key;
  const half = key.publicKey?.();
  if (half === undefined) {
    return { problem: 'has no publicKey to serve in the JWKS; add one, or leave jwks out' };
  }
  if (kid === undefined) {
    return {
      problem: `has no kid, by which receivers find a key in the JWKS; add one, such as its RFC 7638 thumbprint, "${jwkThumbprint(half)}"`,
    };
  }
  return { published: { jwk: publicJwk(half, { alg, kid }), closes: window?.closes ?? Infinity } };
}

/** What makes up a public key of each type, RFC 7638 section 3.2, in the order in which its thumbprint wants it. */
const PUBLIC_MEMBERS = {
  EC: ['crv', 'kty', 'x', 'y'],
  OKP: ['crv', 'kty', 'x'],
  RSA: ['e', 'kty', 'n'],
} as const;

type PublicMember = (typeof PUBLIC_MEMBERS)[keyof typeof PUBLIC_MEMBERS][number];

/** Writes the public half as a JWK: what is public is picked, so that nothing else can come along. */
function publicJwk(
  key: KeyObject,
  { alg, kid }: { readonly alg: SignatureAlgorithm; readonly kid: string | undefined },
): PublicJwk {
  const { kty, ...members } = pickPublic(key);
  return { kty, ...members, ...(kid !== undefined && { kid }), alg, use: 'sig' };
}

/** The SHA-256 thumbprint of a public key, RFC 7638: the same for everybody who has the key, and so a good `kid`. */
function jwkThumbprint(key: KeyObject): string {
  return createHash('sha256')
    .update(JSON.stringify(pickPublic(key)))
    .digest('base64url');
}

function pickPublic(key: KeyObject): { kty: string } & Partial<Record<PublicMember, string>> {
  if (key.type !== 'public') throw new TypeError('only public keys are published');
  const jwk = key.export({ format: 'jwk' });
  const names = PUBLIC_MEMBERS[jwk.kty as keyof typeof PUBLIC_MEMBERS];
  return Object.fromEntries(names.map((name) => [name, jwk[name]])) as ReturnType<
    typeof pickPublic
  >;
}
