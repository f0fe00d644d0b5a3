import { readFileSync } from 'node:fs';
import type { JsonWebKey } from 'node:crypto';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { parseCompactToken } from '../../lib/token/decoding.js';
import { parseKey } from '../../lib/token/keys/key-material.js';
import type { VerificationKey } from '../../lib/token/keys/token-keys.js';
import type { SignatureAlgorithm } from '../../lib/token/index.js';
import { VECTORS } from './vector-file.js';

interface Case {
  readonly tcId: number;
  readonly comment: string;
  readonly result: 'valid' | 'invalid';
}

interface MacCase extends Case {
  readonly key: string;
  readonly msg: string;
  readonly tag: string;
}

interface MacGroup {
  readonly keySize: number;
  readonly tagSize: number;
  readonly tests: readonly MacCase[];
}

interface JwsGroup {
  readonly comment: string;
  /** Absent if the excerpt omits it. */
  readonly private?: JsonWebKey & { alg: SignatureAlgorithm };
  readonly public?: JsonWebKey & { alg: SignatureAlgorithm };
  readonly tests: readonly (Case & { readonly jws: string })[];
}

function groupsOf<Group>(file: string): readonly Group[] {
  const text = readFileSync(join(VECTORS, 'wycheproof', file), 'utf8');
  return (JSON.parse(text) as { testGroups: Group[] }).testGroups;
}

/** Checks the compact form and the signature, but no claims. */
async function holds(key: VerificationKey, jws: string): Promise<boolean> {
  try {
    return await key.verify(parseCompactToken(jws));
  } catch {
    return false;
  }
}

describe.each(
  groupsOf<JwsGroup>('json_web_signature_test.json').map(
    (group) => [group.comment, group] as const,
  ),
)('Wycheproof, JSON Web Signature: %s', (_, group) => {
  const key = (group.public ?? group.private)!;
  const parsed = parseKey({ alg: key.alg, key }, 'verify');

  it.each(group.tests.map((test) => [test.tcId, test.comment, test] as const))(
    '%i %s',
    async (_id, _comment, { jws, result }) => {
      expect(await holds(parsed.key!, jws)).toBe(result === 'valid');
    },
  );

  it('has a key that is accepted', () => {
    expect(parsed.problem).toBeUndefined();
  });
});

describe.each([
  ['HS256', 'hmac_sha256_test.json', 256],
  ['HS384', 'hmac_sha384_test.json', 384],
  ['HS512', 'hmac_sha512_test.json', 512],
] as const)('Wycheproof, HMAC: %s', (alg, file, bits) => {
  const tests = groupsOf<MacGroup>(file).flatMap(({ keySize, tagSize, tests }) =>
    tests.map((test) => ({ ...test, keySize, tagSize })),
  );
  const longEnough = tests.filter(({ keySize }) => keySize >= bits);

  /** The message replaces header and payload. */
  function verify({ key, msg, tag }: MacCase): boolean {
    const parsed = parseKey({ alg, key: Buffer.from(key, 'hex') }, 'verify');
    return parsed.key!.verify({
      signingInput: Buffer.from(msg, 'hex') as unknown as string,
      header: '',
      payload: '',
      signature: Buffer.from(tag, 'hex').toString('base64url'),
    }) as boolean;
  }

  it('accepts a full-length tag only if it is valid', () => {
    const full = longEnough.filter(({ tagSize }) => tagSize === bits);

    for (const test of full) {
      expect([test.tcId, verify(test)]).toEqual([test.tcId, test.result === 'valid']);
    }
    expect(full.filter(({ result }) => result === 'valid').length).toBeGreaterThan(5);
    expect(full.filter(({ result }) => result === 'invalid').length).toBeGreaterThan(5);
  });

  it('refuses truncated tags', () => {
    const cut = longEnough.filter(({ tagSize }) => tagSize < bits);

    for (const test of cut) expect([test.tcId, verify(test)]).toEqual([test.tcId, false]);
    expect(cut.length).toBeGreaterThan(5);
  });

  it('refuses keys that are too short for the algorithm', () => {
    const short = tests.filter(({ keySize }) => keySize < bits);

    for (const { tcId, key } of short) {
      const { problem } = parseKey({ alg, key: Buffer.from(key, 'hex') }, 'verify');
      expect([tcId, problem]).toEqual([tcId, expect.stringMatching(/RFC 7518|missing/)]);
    }
    expect(short).not.toHaveLength(0);
  });
});
