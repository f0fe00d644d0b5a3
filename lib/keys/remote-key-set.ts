import type { JWK } from 'jose';
import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { blockedDestination } from '../egress/blocked-destination.js';
import { createGuardedAgents } from '../egress/guarded-agent.js';
import { WebhookStoreError } from '../errors/webhook.error.js';
import { isKeyId } from '../token/identifier.js';
import { decodeUtf8, isObject, parseJson } from '../token/json/strict-json.js';
import { parseKey } from '../token/keys/key-material.js';
import type { VerificationKey } from '../token/keys/token-key.js';
import type { MaybePromise } from '../token/maybe-promise.js';
import {
  MAX_KEYS_TRIED,
  SIGNATURE_ALGORITHMS,
  type SignatureAlgorithm,
} from '../token/webhook-token.constants.js';
import type { ResolvedJwksOptions } from './jwks-options.js';
import { type KeyLog, reasonOf, type TroubleLog } from './trouble-log.js';

/** A hundred keys with certificates of their own stay below it. */
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
      if (signal.aborted) throw unreadable('no complete answer came in time');
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
      const fault = headFault(response);
      if (fault !== undefined) return refuse(fault);
      const chunks: Buffer[] = [];
      let bytes = 0;
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes > MAX_SET_BYTES) return refuse(TOO_LARGE);
        chunks.push(chunk);
      });
      response.once('end', () => resolve(Buffer.concat(chunks)));
      // An answer that breaks off ends with an error, not with `end`.
      response.on('error', reject);
    });
  });
}

const TOO_LARGE = `the answer has more than ${MAX_SET_BYTES} bytes`;

function headFault({ statusCode = 0, headers }: IncomingMessage): string | undefined {
  if (statusCode >= 300 && statusCode < 400) {
    return `the answer has status ${statusCode}, and redirects are not followed: configure the address they lead to`;
  }
  if (statusCode !== 200) return `the answer has status ${statusCode}`;
  if ((headers['content-encoding'] ?? 'identity') !== 'identity') return 'the answer is compressed';
  return Number(headers['content-length'] ?? 0) > MAX_SET_BYTES ? TOO_LARGE : undefined;
}

/** A key set could not be read, for this reason. */
function unreadable(reason: string): WebhookStoreError {
  return new WebhookStoreError('keys_unavailable', reason);
}

const MAX_KEYS = 100;

/** RFC 7518, section 6, and RFC 8037: whatever only the owner of a key pair may know. */
const PRIVATE_MEMBERS = ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k'];

/** The keys of a set that was read, by name. */
class KeySet {
  private readonly named = new Map<string, VerificationKey[]>();
  private readonly all: VerificationKey[] = [];

  /** @throws {@link WebhookStoreError} `keys_unavailable` for a document that is no sensible set */
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

interface RemoteKeySetOptions extends ResolvedJwksOptions {
  readonly fetch: FetchJson;
  readonly clock: WebhookClock;
  readonly trouble: TroubleLog;
  readonly log: KeyLog;
}

/**
 * A key set at an address, and when to read it.
 *
 * Unlike the remote key set of jose, it counts the cooldown from the last attempt, so that unknown names cause no
 * stream of requests while the issuer is down, and it keeps serving a set that cannot be read again.
 */
export class RemoteKeySet {
  private set: KeySet | undefined;
  private readAt = -Infinity;
  private attemptedAt = -Infinity;
  private failedAt = -Infinity;
  private reading: Promise<void> | undefined;
  private readonly told = new Set<string>();

  constructor(
    private readonly url: URL,
    private readonly options: RemoteKeySetOptions,
  ) {}

  /**
   * The keys a name stands for.
   *
   * @returns at once for a key that is known, unless the set has not been read for twice its `maxAge`
   * @throws {@link WebhookStoreError} `keys_unavailable` where it cannot be told whether there is such a key
   */
  candidates(kid: string | undefined): MaybePromise<readonly VerificationKey[]> {
    const known = this.usable()?.candidates(kid) ?? [];
    if (known.length === 0) return this.lookAnew(kid);
    const age = this.since(this.readAt);
    if (age <= this.options.maxAge || !this.mayRead()) return known;
    const reading = this.read();
    // While an issuer is down, nobody who needs a known key waits for it.
    const down = this.since(this.failedAt) <= this.options.maxAge;
    if (down || age <= 2 * this.options.maxAge) return known;
    return reading.then(() => this.usable()?.candidates(kid) ?? []);
  }

  /** Every key that is relied on now, without a look at the address. */
  known(): readonly VerificationKey[] {
    return this.usable()?.known() ?? [];
  }

  /** A name nobody knows: one look at the set is due, if the last one was long enough ago. */
  private lookAnew(kid: string | undefined): MaybePromise<readonly VerificationKey[]> {
    return this.mayRead() ? this.read().then(() => this.answer(kid)) : this.answer(kid);
  }

  /** What can be said of a name now that the set was looked at. */
  private answer(kid: string | undefined): readonly VerificationKey[] {
    const set = this.usable();
    if (set !== undefined && this.failedAt < this.attemptedAt) return set.candidates(kid);
    const known = set?.candidates(kid) ?? [];
    if (known.length > 0) return known;
    throw new WebhookStoreError(
      'keys_unavailable',
      'the keys of the issuer cannot be read now: try again later',
    );
  }

  private usable(): KeySet | undefined {
    return this.since(this.readAt) <= this.options.maxStale ? this.set : undefined;
  }

  /** Whether a reading is due, or going on and to be waited for. */
  private mayRead(): boolean {
    return this.reading !== undefined || this.since(this.attemptedAt) >= this.options.cooldown;
  }

  /** Milliseconds; a time in the future, after the clock was set back, is long ago. */
  private since(time: number): number {
    const passed = this.options.clock.now() - time;
    return passed >= 0 ? passed : Infinity;
  }

  /** Reads the set, one reading for all; never rejects. */
  private read(): Promise<void> {
    this.reading ??= this.readSet().finally(() => (this.reading = undefined));
    return this.reading;
  }

  private async readSet(): Promise<void> {
    const { clock, fetch, trouble } = this.options;
    const began = clock.now();
    this.attemptedAt = began;
    try {
      const { set, notices } = KeySet.read(await fetch(this.url));
      this.set = set;
      this.readAt = began;
      this.failedAt = -Infinity;
      trouble.ended();
      this.tell(notices);
    } catch (error) {
      this.failedAt = began;
      trouble.trouble(error);
    }
  }

  private tell(notices: readonly string[]): void {
    for (const notice of notices) {
      if (this.told.has(notice)) continue;
      // The owner of the set decides what it says, so what was told is forgotten before it grows.
      if (this.told.size >= MAX_TOLD) this.told.clear();
      this.told.add(notice);
      this.options.log('warn', `The key set at ${this.url.host}: ${notice}`);
    }
  }
}

const MAX_TOLD = 200;
