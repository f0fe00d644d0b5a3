import { describe, expect, it } from '@jest/globals';
import { expectedHash } from '../../lib/explain/body-hints.js';

const HEX = 'ab'.repeat(32);

describe('the digest that a token names', () => {
  it.each<[string, Record<string, unknown>, string | undefined]>([
    ['as the specification spells it', { hash: `sha3-256:${HEX}` }, 'sha3-256'],
    ['as RFC 6920 spells it', { hash: `sha-256:${HEX}` }, 'sha256'],
    ['in data, without algorithm', { data: { hash: HEX, size: 1 } }, 'sha3-256'],
    ['in data, with one', { data: { hash: HEX, hashAlg: 'SHA-256' } }, 'sha256'],
    ['beside data', { hash: `sha256:${HEX}`, data: { hash: 'x' } }, 'sha256'],
    ['in a wrong length', { hash: 'sha256:ab' }, undefined],
    ['by an unknown name', { hash: `md5:${HEX}` }, undefined],
    ['in no form', { hash: HEX }, undefined],
    ['nowhere', { data: { id: 1 } }, undefined],
    ['by no text', { data: { hash: HEX, hashAlg: 1 } }, undefined],
  ])('%s', (_, webhook, algorithm) => {
    expect(expectedHash(webhook)).toEqual(
      algorithm === undefined ? undefined : { algorithm, hex: HEX },
    );
  });
});
