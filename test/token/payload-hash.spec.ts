import { describe, expect, it } from '@jest/globals';
import { sha256, sha384, sha512 } from '@noble/hashes/sha2.js';
import { sha3_256, sha3_384, sha3_512 } from '@noble/hashes/sha3.js';
import * as fc from 'fast-check';
import { startDigest, parsePayloadHash, samePayloadHash } from '../../lib/token/payload-hash.js';
import { createDigest, digest, type HashAlgorithm } from '../../lib/token/index.js';

const ORACLES: Record<HashAlgorithm, (bytes: Uint8Array) => Uint8Array> = {
  sha256,
  sha384,
  sha512,
  'sha3-256': sha3_256,
  'sha3-384': sha3_384,
  'sha3-512': sha3_512,
};
const ALGORITHMS = Object.keys(ORACLES) as HashAlgorithm[];
const SHA3 = ALGORITHMS.filter((name) => name.startsWith('sha3-'));
const GRAMMAR =
  /^(?:(?:sha256|sha3-256):[0-9A-Fa-f]{64}|(?:sha384|sha3-384):[0-9A-Fa-f]{96}|(?:sha512|sha3-512):[0-9A-Fa-f]{128})$/;

/** FIPS 180-4 and FIPS 202, the messages "" and "abc": the first bytes of each digest. */
const KNOWN: readonly [HashAlgorithm, string, string][] = [
  ['sha256', '', 'e3b0c44298fc1c149afbf4c8996fb924'],
  ['sha384', '', '38b060a751ac96384cd9327eb1b1e36a'],
  ['sha512', '', 'cf83e1357eefb8bdf1542850d66d8007'],
  ['sha3-256', '', 'a7ffc6f8bf1ed76651c14756a061d662'],
  ['sha3-384', '', '0c63a75b845e4f7d01107d852e4c2485'],
  ['sha3-512', '', 'a69f73cca23a9ac5c8b567dc185a756e'],
  ['sha256', 'abc', 'ba7816bf8f01cfea414140de5dae2223'],
  ['sha384', 'abc', 'cb00753f45a35e8bb5a03d699ac65007'],
  ['sha512', 'abc', 'ddaf35a193617abacc417349ae204131'],
  ['sha3-256', 'abc', '3a985da74fe225b2045c172d6bd390bd'],
  ['sha3-384', 'abc', 'ec01498288516fc926459f58e2c6ad8d'],
  ['sha3-512', 'abc', 'b751850b1a57168a5693cd924b6b096e'],
];

const bytes = fc.uint8Array({ maxLength: 500 });
const algorithm = fc.constantFrom(...ALGORITHMS);

describe('digest', () => {
  it.each(KNOWN)('computes %s of "%s"', (name, message, start) => {
    expect(digest(name, Buffer.from(message)).startsWith(`${name}:${start}`)).toBe(true);
  });

  it.each(ALGORITHMS)('agrees with an independent implementation of %s', (name) => {
    fc.assert(
      fc.property(bytes, (message) => {
        expect(digest(name, message)).toBe(`${name}:${hex(ORACLES[name](message))}`);
      }),
    );
  });

  it.each(SHA3)('computes %s without support by the runtime', (name) => {
    fc.assert(
      fc.property(fc.array(bytes, { maxLength: 4 }), (chunks) => {
        const pieces = startDigest(name, new Set());
        for (const chunk of chunks) pieces.update(chunk);

        expect(pieces.digest()).toBe(digest(name, Buffer.concat(chunks)));
      }),
    );
  });

  it('is the same in chunks and as a whole', () => {
    fc.assert(
      fc.property(algorithm, fc.array(bytes, { maxLength: 6 }), (name, chunks) => {
        const pieces = createDigest(name);
        for (const chunk of chunks) expect(pieces.update(chunk)).toBe(pieces);

        expect(pieces.digest()).toBe(digest(name, Buffer.concat(chunks)));
      }),
    );
  });

  it.each(['md5', 'SHA256', 'sha-256', '', '__proto__', undefined])(
    'refuses the algorithm %p',
    (name) => {
      expect(() => createDigest(name as HashAlgorithm)).toThrow(
        expect.objectContaining({ name: 'WebhookPayloadError', code: 'hash_unsupported' }),
      );
    },
  );
});

describe('parsePayloadHash', () => {
  it('parses the result of digest in either case', () => {
    fc.assert(
      fc.property(algorithm, bytes, fc.boolean(), (name, message, upper) => {
        const lower = hex(ORACLES[name](message));
        const parsed = parsePayloadHash(`${name}:${upper ? lower.toUpperCase() : lower}`);

        expect(parsed).toEqual({ algorithm: name, hex: lower });
        expect(samePayloadHash(parsed, digest(name, message))).toBe(true);
      }),
    );
  });

  it('accepts exactly the grammar', () => {
    const characters = fc.constantFrom('0', 'a', 'F', 'g', ':', '-', ' ', '\n', 's', '\uff10');
    fc.assert(
      fc.property(
        algorithm,
        fc.nat(),
        fc.nat({ max: 2 }),
        fc.string({ unit: characters, maxLength: 2 }),
        (name, seed, removed, inserted) => {
          const right = digest(name, Uint8Array.of());
          const at = seed % (right.length + 1);
          const text = right.slice(0, at) + inserted + right.slice(at + removed);

          expect(isRead(text)).toBe(GRAMMAR.test(text));
        },
      ),
      { numRuns: 5_000 },
    );
  });

  it('distinguishes two digests', () => {
    fc.assert(
      fc.property(algorithm, algorithm, bytes, bytes, (one, other, first, second) => {
        const same = one === other && Buffer.from(first).equals(second);

        expect(samePayloadHash(parsePayloadHash(digest(one, first)), digest(other, second))).toBe(
          same,
        );
      }),
    );
  });
});

function hex(of: Uint8Array): string {
  return Buffer.from(of).toString('hex');
}

function isRead(text: string): boolean {
  try {
    parsePayloadHash(text);
    return true;
  } catch {
    return false;
  }
}
