import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { JsonWebKey } from 'node:crypto';
import type {
  SignatureAlgorithm,
  TokenVerifierOptions,
  TrustedIssuer,
  WebhookKey,
} from '../../lib/token/index.js';

/** Where the published vectors are. */
export const VECTORS = join(import.meta.dirname, '../vectors');

/** The published groups, one file each. */
export const GROUPS = ['compact-form', 'header', 'key-choice', 'claims', 'times', 'payload'];

interface VectorKey {
  readonly kid?: string;
  readonly alg: SignatureAlgorithm;
  readonly secret?: string;
  readonly publicJwk?: JsonWebKey;
}

/** One case, as test/vectors/README.md describes it. */
export interface Vector {
  readonly name: string;
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

export function readVectors(group: string): readonly Vector[] {
  const text = readFileSync(join(VECTORS, `${group}.json`), 'utf8');
  return (JSON.parse(text) as { cases: Vector[] }).cases;
}

/** A case's verifier as options of this package. */
export function verifierOptions({ verifier, now }: Vector): TokenVerifierOptions {
  const { issuers, requireHash: _, ...rest } = verifier;
  return {
    ...rest,
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
