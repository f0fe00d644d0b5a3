import { isKeyId } from '../token/identifier.js';
import { parseKey } from '../token/keys/key-material.js';
import type { JWK, JSONWebKeySet } from 'jose';
import type { VerificationKey } from '../token/keys/token-key.js';
import {
  MAX_KEYS_TRIED,
  SIGNATURE_ALGORITHMS,
  type SignatureAlgorithm,
} from '../token/webhook-token.constants.js';
import { unreadable } from './jwks-fetch.js';

const MAX_KEYS = 100;

/** RFC 7518, section 6, and RFC 8037: whatever only the owner of a key pair may know. */
const PRIVATE_MEMBERS = ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k'];

/** The keys of a set that was read, by name. */
export class KeySet {
  private readonly named = new Map<string, VerificationKey[]>();
  private readonly all: VerificationKey[] = [];

  /** @throws {@link WebhookStoreError} `keys_unavailable` for a document that is no sensible set */
  static read({ keys }: JSONWebKeySet): { set: KeySet; notices: readonly string[] } {
    if (keys.length > MAX_KEYS) throw unreadable(`the set has more than ${MAX_KEYS} keys`);
    const set = new KeySet();
    const notices = keys.flatMap((jwk, index) => {
      const notice = set.addJwk(jwk);
      return notice === undefined ? [] : [`keys[${index}]: ${notice}`];
    });
    if (set.all.length === 0) notices.push('no key of the set can verify a webhook');
    return { set, notices };
  }

  /**
   * The keys of a name. A key without one serves only tokens without one, so that an unknown name is
   * told from a wrong signature; without a name all keys, unless they are too many to try.
   */
  candidates(kid: string | undefined): readonly VerificationKey[] {
    if (kid !== undefined) return this.named.get(kid) ?? [];
    return this.all.length <= MAX_KEYS_TRIED ? this.all : [];
  }

  /** Every key of the set. */
  known(): readonly VerificationKey[] {
    return this.all;
  }

  /** @returns what the issuer should be told of the key, if anything */
  private addJwk(jwk: JWK): string | undefined {
    if (PRIVATE_MEMBERS.some((member) => member in jwk)) {
      return 'holds a secret or a private key, which anybody can read now: it is not used, and its owner must replace it';
    }
    const { kid } = jwk;
    const alg = algorithmOf(jwk);
    // Not an error: a set may serve other purposes and other algorithms too (RFC 7517, section 5).
    if (alg === undefined || !isForVerifying(jwk)) return undefined;
    if (kid !== undefined && !isKeyId(kid)) return 'has a kid that is none: it is not used';
    const { key, fault } = parseKey({ kid, alg, key: jwk }, 'verify');
    if (fault !== undefined) return `is not used: ${fault}`;
    const namesakes = kid === undefined ? [] : (this.named.get(kid) ?? []);
    // One name may stand for keys of several algorithms; for more keys than are tried, it stands for none.
    if (namesakes.length >= MAX_KEYS_TRIED)
      return 'shares its kid with too many keys: it is not used';
    if (kid !== undefined) this.named.set(kid, [...namesakes, key]);
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

/** The algorithm the key says it is for, or the one its kind is for. */
function algorithmOf({ alg, kty, crv }: JWK): SignatureAlgorithm | undefined {
  if (alg !== undefined) return SIGNATURE_ALGORITHMS.find((known) => known === alg);
  if (kty === 'RSA') return 'RS256';
  if (kty === 'EC') return crv === 'P-256' ? 'ES256' : crv === 'P-384' ? 'ES384' : undefined;
  return kty === 'OKP' && crv === 'Ed25519' ? 'EdDSA' : undefined;
}
