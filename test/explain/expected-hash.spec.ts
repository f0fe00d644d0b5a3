import { describe, expect, it } from '@jest/globals';
import { expectedHash } from '../../lib/explain/body-hints.js';

const HEX = 'ab'.repeat(32);

describe('the hash of the body in a token', () => {
  it.each<[string, Record<string, unknown>, string | undefined]>([
    ['is read in the form of the specification', { hash: `sha3-256:${HEX}` }, 'sha3-256'],
    ['is read in the form of RFC 6920', { hash: `sha-256:${HEX}` }, 'sha256'],
    ['is read from data, as SHA3-256 by default', { data: { hash: HEX, size: 1 } }, 'sha3-256'],
    ['is read from data with an algorithm', { data: { hash: HEX, hashAlg: 'SHA-256' } }, 'sha256'],
    ['takes precedence over data', { hash: `sha256:${HEX}`, data: { hash: 'x' } }, 'sha256'],
    ['is ignored if its length is wrong', { hash: 'sha256:ab' }, undefined],
    ['is ignored if its algorithm is unknown', { hash: `md5:${HEX}` }, undefined],
    ['is ignored without an algorithm', { hash: HEX }, undefined],
    ['may be absent', { data: { id: 1 } }, undefined],
    ['is ignored if hashAlg is not a string', { data: { hash: HEX, hashAlg: 1 } }, undefined],
  ])('%s', (_, webhook, algorithm) => {
    expect(expectedHash(webhook)).toEqual(
      algorithm === undefined ? undefined : { algorithm, hex: HEX },
    );
  });
});
