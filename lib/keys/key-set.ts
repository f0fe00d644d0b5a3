import type { JWK } from 'jose';
import { isKeyId } from '../token/identifier.js';
import { isObject } from '../token/json.js';
import { parseKey } from '../token/keys/key-material.js';
import type { VerificationKey } from '../token/keys/token-keys.js';
import {
  MAX_KEYS_TRIED,
  SIGNATURE_ALGORITHMS,
  type SignatureAlgorithm,
} from '../token/webhook-token.constants.js';
import { WebhookStoreError } from '../errors/webhook.error.js';
import type { ResolvedJwksOptions } from './jwks-options.js';
import { createJsonClient, UnreadableAnswer } from './json-client.js';

/** Enough for a hundred keys with certificates. */
const MAX_SET_BYTES = 65_536;

export type FetchJson = (url: URL) => Promise<unknown>;

/**
 * @returns a function that rejects with {@link WebhookStoreError} `keys_unavailable`; the message gives the reason
 *   and quotes nothing of the answer
 */
export function createKeySetClient({ timeout, ...options }: ResolvedJwksOptions): FetchJson {
  const requestJson = createJsonClient(options);
  return async (url) => {
    try {
      return await requestJson(url, {
        headers: { accept: 'application/jwk-set+json, application/json' },
        signal: AbortSignal.timeout(timeout),
        maxBytes: MAX_SET_BYTES,
      });
    } catch (error) {
      throw error instanceof UnreadableAnswer ? unreadable(error.message) : error;
    }
  };
}

/** The error of a key set that could not be read. */
export function unreadable(reason: string): WebhookStoreError {
  return new WebhookStoreError('keys_unavailable', reason);
}

const MAX_KEYS = 100;

/** Members with secret key material: RFC 7518, section 6, and RFC 8037. */
const PRIVATE_MEMBERS = ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k'];

/** The usable keys of a JSON Web Key Set, by kid. */
export class KeySet {
  private readonly named = new Map<string, VerificationKey[]>();
  private readonly all: VerificationKey[] = [];

  /**
   * Parses a set and skips the keys in it that cannot be used.
   *
   * @returns the set, and warnings about skipped keys
   * @throws {@link WebhookStoreError} `keys_unavailable` for a document that is not a key set, or is too large
   */
  static read(document: unknown): { set: KeySet; notices: readonly string[] } {
    const keys: unknown = isObject(document) ? document['keys'] : undefined;
    if (!Array.isArray(keys))
      throw unreadable('the answer is not a key set: it has no list "keys"');
    if (keys.length > MAX_KEYS) throw unreadable(`the set has more than ${MAX_KEYS} keys`);
    const set = new KeySet();
    const notices = keys.flatMap((jwk: unknown, index) => {
      const notice = isObject(jwk) ? set.addJwk(jwk) : 'is not an object: it is not used';
      return notice === undefined ? [] : [`keys[${index}]: ${notice}`];
    });
    if (set.all.length === 0) notices.push('no key of the set can verify a webhook');
    return { set, notices };
  }

  /**
   * The keys with a kid; for a token without one, all keys unless they are too many to try. A key without kid is used only
   * for tokens without kid, so that an unknown kid is not reported as a wrong signature.
   */
  candidates(kid: string | undefined): readonly VerificationKey[] {
    if (kid !== undefined) return this.named.get(kid) ?? [];
    return this.all.length <= MAX_KEYS_TRIED ? this.all : [];
  }

  known(): readonly VerificationKey[] {
    return this.all;
  }

  /** @returns a warning if the key should not be in the set or cannot be used */
  private addJwk(jwk: JWK): string | undefined {
    if (PRIVATE_MEMBERS.some((member) => member in jwk)) {
      return 'has a secret or private key, which is now public: it is not used, and its owner must replace it';
    }
    const { kid } = jwk;
    const alg = algorithmOf(jwk);
    // No warning: a set may contain keys for other purposes and algorithms (RFC 7517, section 5).
    if (alg === undefined || !isForVerifying(jwk)) return undefined;
    if (kid !== undefined && !isKeyId(kid)) return 'has an invalid kid: it is not used';
    const { key, problem } = parseKey({ kid, alg, key: jwk }, 'verify');
    if (problem !== undefined) return `is not used: ${problem}`;
    const sameKid = kid === undefined ? [] : (this.named.get(kid) ?? []);
    // Keys of several algorithms may share a kid.
    if (sameKid.length >= MAX_KEYS_TRIED)
      return 'shares its kid with too many keys: it is not used';
    if (kid !== undefined) this.named.set(kid, [...sameKid, key]);
    this.all.push(key);
    return undefined;
  }
}

function isForVerifying({ use, key_ops: operations }: JWK): boolean {
  return (
    (use === undefined || use === 'sig') &&
    (operations === undefined || (Array.isArray(operations) && operations.includes('verify')))
  );
}

/** The key's `alg`, or the default for its type. */
function algorithmOf({ alg, kty, crv }: JWK): SignatureAlgorithm | undefined {
  if (alg !== undefined) return SIGNATURE_ALGORITHMS.find((known) => known === alg);
  if (kty === 'RSA') return 'RS256';
  if (kty === 'EC') return crv === 'P-256' ? 'ES256' : crv === 'P-384' ? 'ES384' : undefined;
  return kty === 'OKP' && crv === 'Ed25519' ? 'EdDSA' : undefined;
}
