import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { JsonWebKey } from 'node:crypto';
import type {
  HashAlgorithm,
  SignatureAlgorithm,
  TokenVerifierOptions,
  TrustedIssuer,
  WebhookKey,
  WebhookProfile,
} from '../../lib/token/index.js';

/** Directory of the published vectors. */
export const VECTORS = join(import.meta.dirname, '../vectors');

/** Groups of the default wire format, one file each. */
export const GROUPS = ['compact-form', 'header', 'key-choice', 'claims', 'times', 'payload'];

/** Groups of the draft wire formats, one file each. */
export const DRAFT_GROUPS = ['swt-draft-00', 'swt-draft-02'];

/** Groups of the sending direction, one file for each wire format. */
export const SEND_GROUPS = ['send-webhook-token', 'send-swt-draft-00', 'send-swt-draft-02'];

interface VectorKey {
  readonly kid?: string;
  readonly alg: SignatureAlgorithm;
  readonly secret?: string;
  readonly publicJwk?: JsonWebKey;
}

/** One case of the receiving direction; see test/vectors/README.md. */
export interface Vector {
  readonly name: string;
  readonly profile: string;
  readonly reason: string;
  readonly token: string;
  readonly method: 'HEAD' | 'POST';
  readonly body?: string;
  readonly now: number;
  readonly verifier: {
    readonly issuers: readonly {
      readonly issuer: string;
      readonly secrets?: readonly string[];
      readonly keys?: readonly VectorKey[];
    }[];
    readonly audience?: string | readonly string[];
    readonly clockTolerance?: number;
    readonly maxTokenLifetime?: number;
    readonly requireHash?: boolean;
  };
  readonly expect:
    | { readonly accepted: true; readonly payload: string; readonly bodyVerified: boolean }
    | { readonly accepted: false; readonly code: string };
}

/** One case of the sending direction. */
export interface SendVector {
  readonly name: string;
  readonly profile: string;
  readonly reason: string;
  readonly now: number;
  readonly sender: {
    readonly issuer: string;
    readonly key: {
      readonly kid?: string;
      readonly alg: SignatureAlgorithm;
      readonly secret?: string;
      readonly privateJwk?: JsonWebKey;
    };
    readonly tokenLifetime: number;
    readonly hash?: HashAlgorithm;
    readonly method: 'auto' | 'HEAD' | 'POST';
  };
  readonly event: {
    readonly name: string;
    readonly id: string;
    readonly jti: string;
    readonly audience?: string | readonly string[];
    readonly subject?: string;
    readonly data?: unknown;
    readonly bytes?: string;
    readonly contentType?: string;
  };
  readonly expect: {
    readonly method: 'HEAD' | 'POST';
    readonly headers: Readonly<Record<string, string>>;
    readonly body?: string;
    readonly header: Readonly<Record<string, string>>;
    readonly claims: Readonly<Record<string, unknown>>;
  };
}

export function readVectors(group: string): readonly Vector[] {
  return readCases(group) as readonly Vector[];
}

export function readSendVectors(group: string): readonly SendVector[] {
  return readCases(group) as readonly SendVector[];
}

function readCases(group: string): readonly unknown[] {
  const text = readFileSync(join(VECTORS, `${group}.json`), 'utf8');
  return (JSON.parse(text) as { cases: unknown[] }).cases;
}

/** The verifier options for a case. */
export function verifierOptions({ profile, verifier, now }: Vector): TokenVerifierOptions {
  const { issuers, requireHash: _, ...rest } = verifier;
  return {
    ...rest,
    profiles: [profile as WebhookProfile],
    now: () => now,
    issuers: issuers.map(({ issuer, secrets, keys }): TrustedIssuer => ({
      issuer,
      secret: secrets,
      keys: keys?.map(({ kid, alg, secret, publicJwk }): WebhookKey => {
        return { kid, alg, key: secret ?? publicJwk! };
      }),
    })),
  };
}
