import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import type { JWK } from 'jose';
import { isKeyId } from '../token/identifier.js';
import { isObject, decodeUtf8, parseJson } from '../token/decoding.js';
import { parseKey } from '../token/keys/key-material.js';
import type { VerificationKey } from '../token/keys/token-keys.js';
import {
  MAX_KEYS_TRIED,
  SIGNATURE_ALGORITHMS,
  type SignatureAlgorithm,
} from '../token/webhook-token.constants.js';
import { blockedDestination } from '../egress/egress-policy.js';
import { createGuardedAgents } from '../egress/guarded-agent.js';
import { WebhookStoreError } from '../errors/webhook.error.js';
import type { ResolvedJwksOptions } from './jwks-options.js';
import { reasonOf } from './key-log.js';

/** Enough for a hundred keys with certificates. */
const MAX_SET_BYTES = 65_536;

/** Reads the JSON document at an address. */
export type FetchJson = (url: URL) => Promise<unknown>;

/**
 * Creates the client that reads key sets: through the egress policy, without redirects or proxies, and with a limit
 * on time and bytes.
 *
 * @returns a function that rejects with {@link WebhookStoreError} `keys_unavailable`; the message gives the reason
 *   and quotes nothing of the answer
 */
export function createKeySetClient({ policy, ca, timeout }: ResolvedJwksOptions): FetchJson {
  const { httpAgent, httpsAgent } = createGuardedAgents(policy, { tls: { ca } });
  return async (url) => {
    const signal = AbortSignal.timeout(timeout);
    const secure = url.protocol === 'https:';
    const request = (secure ? https : http).request(url, {
      agent: secure ? httpsAgent : httpAgent,
      headers: {
        accept: 'application/jwk-set+json, application/json',
        'accept-encoding': 'identity',
      },
      signal,
    });
    let body: Buffer;
    try {
      body = await answerTo(request.end());
    } catch (error) {
      if (signal.aborted) throw unreadable('no complete answer arrived in time');
      if (error instanceof WebhookStoreError) throw error;
      throw unreadable(`the request failed, ${reasonOf(blockedDestination(error) ?? error)}`);
    }
    const document = parseJson(decodeUtf8(body) ?? '');
    if (document === undefined) throw unreadable('the answer is not JSON');
    return document;
  };
}

function answerTo(request: http.ClientRequest): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    request.on('error', reject);
    request.once('response', (response) => {
      const refuse = (reason: string): void => {
        reject(unreadable(reason));
        request.destroy();
      };
      const problem = headProblem(response);
      if (problem !== undefined) return refuse(problem);
      const chunks: Buffer[] = [];
      let bytes = 0;
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes > MAX_SET_BYTES) return refuse(TOO_LARGE);
        chunks.push(chunk);
      });
      response.once('end', () => resolve(Buffer.concat(chunks)));
      // An interrupted answer ends with an error, not with `end`.
      response.on('error', reject);
    });
  });
}

const TOO_LARGE = `the answer has more than ${MAX_SET_BYTES} bytes`;

function headProblem({ statusCode = 0, headers }: IncomingMessage): string | undefined {
  if (statusCode >= 300 && statusCode < 400) {
    return `the answer has status ${statusCode}, and redirects are not followed: configure the final address`;
  }
  if (statusCode !== 200) return `the answer has status ${statusCode}`;
  if ((headers['content-encoding'] ?? 'identity') !== 'identity') return 'the answer is compressed';
  return Number(headers['content-length'] ?? 0) > MAX_SET_BYTES ? TOO_LARGE : undefined;
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

  /** Every key of the set. */
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
