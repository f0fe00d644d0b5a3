import { createHash, randomUUID } from 'node:crypto';
import { DRAFT_00_HASH_NAMES } from '../../token/profiles/swt-draft-00.profile.js';
import type { HashAlgorithm } from '../../token/webhook-token.constants.js';
import type { ConformanceProfile, ProbeRequest } from './probe.interface.js';
import type { ProbeSigner } from './probe.signer.js';

/** Members of a JSON object; one that is `undefined` is omitted. */
type Members = Readonly<Record<string, unknown>>;

/** The configuration of the receiver under test. */
export interface ProbeSettings {
  readonly profile: ConformanceProfile;
  readonly issuer: string;
  readonly event: string;
  readonly audience?: string | undefined;
  readonly kid?: string | undefined;
  readonly signer: ProbeSigner;
  /** Epoch milliseconds. */
  now(): number;
}

/** How a request differs from a valid one. Everything derived from a change is derived correctly. */
export interface Forgery {
  readonly method?: string;
  readonly header?: Members;
  readonly claims?: Members;
  /** Overrides members of the claim `webhook`. */
  readonly webhook?: Members;
  /** Changes the JSON of the header or of the claims before it is encoded. */
  readonly headerText?: (text: string) => string | Buffer;
  readonly claimsText?: (text: string) => string | Buffer;
  readonly input?: (input: string) => string;
  readonly token?: (header: string, claims: string, signature: string) => string;
  /** The Authorization headers, from that of the valid request. */
  readonly authorization?: (own: string) => readonly string[];
  readonly signer?: ProbeSigner;
  /** The body that is sent; the token does not depend on it. */
  readonly body?: string | Buffer | undefined;
  readonly headers?: readonly (readonly [string, string])[];
  readonly contentLength?: number | null;
  readonly sameConnection?: boolean;
}

const LIFETIME = 300;

/** Creates valid requests, and requests with one deviation. */
export class ProbeContext {
  constructor(readonly settings: ProbeSettings) {}

  get profile(): ConformanceProfile {
    return this.settings.profile;
  }

  /** Seconds since the epoch. */
  get now(): number {
    return Math.floor(this.settings.now() / 1_000);
  }

  /** The simplest request of the wire format: HEAD with data in the token, or POST if the format has no HEAD. */
  request(forgery: Forgery = {}): ProbeRequest {
    if (this.profile === 'swt-draft-02') return this.post(BODY, forgery);
    const webhook = { data: { conformance: true }, ...forgery.webhook };
    return this.raw({ ...forgery, webhook });
  }

  /** A POST whose token has the digest of a body; `forgery.body` is sent instead of it. */
  post(
    body: string | Buffer,
    forgery: Forgery = {},
    algorithm: HashAlgorithm = 'sha256',
  ): ProbeRequest {
    const webhook = { ...this.stamp(body, algorithm), ...forgery.webhook };
    return this.raw({ method: 'POST', body, ...forgery, webhook });
  }

  /** A request whose claim `webhook` has only the event. */
  raw(forgery: Forgery = {}): ProbeRequest {
    const { method = 'HEAD', body, headers, contentLength, sameConnection } = forgery;
    const own = `Bearer ${this.token(forgery)}`;
    return {
      method,
      authorization: forgery.authorization?.(own) ?? [own],
      headers: headers ?? [['Content-Type', 'application/json']],
      body: body === undefined ? undefined : Buffer.from(body as string),
      contentLength,
      sameConnection,
    };
  }

  /** The members of `webhook` that authenticate a body. */
  stamp(
    body: string | Buffer,
    algorithm: HashAlgorithm = 'sha256',
    profile: ConformanceProfile = this.profile,
  ): Members {
    const hex = createHash(algorithm).update(body).digest('hex');
    switch (profile) {
      case 'webhook-token':
        return { hash: `${algorithm}:${hex}` };
      case 'swt-draft-00': {
        const size = Buffer.byteLength(body);
        return { data: { hash: hex, hashAlg: DRAFT_00_HASH_NAMES[algorithm], size } };
      }
      case 'swt-draft-02':
        return { hash: `${algorithm.replace(/^sha(?=\d+$)/, 'sha-')}:${hex}` };
    }
  }

  private token(forgery: Forgery): string {
    const { audience, issuer, kid, event, signer: own } = this.settings;
    const signer = forgery.signer ?? own;
    const now = this.now;
    const header = JSON.stringify({
      alg: signer.alg,
      typ: this.profile === 'swt-draft-02' ? 'SWT' : 'JWT',
      kid,
      ...forgery.header,
    });
    const claims = JSON.stringify({
      iss: issuer,
      aud: audience,
      iat: now,
      nbf: now,
      exp: now + LIFETIME,
      jti: randomUUID(),
      webhook: { event, ...forgery.webhook },
      ...forgery.claims,
    });
    const text = `${encode(forgery.headerText?.(header) ?? header)}.${encode(forgery.claimsText?.(claims) ?? claims)}`;
    const input = forgery.input?.(text) ?? text;
    const token = `${input}.${signer.sign(input)}`;
    const [head = '', payload = '', signature = ''] = token.split('.');
    return forgery.token?.(head, payload, signature) ?? token;
  }
}

export const BODY = '{"conformance":true,"n":1}';

function encode(text: string | Buffer): string {
  return Buffer.from(text as string).toString('base64url');
}
