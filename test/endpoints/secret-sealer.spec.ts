import { randomBytes } from 'node:crypto';
import { inspect } from 'node:util';
import { describe, expect, it } from '@jest/globals';
import { sealingKeyProblem, SecretSealer } from '../../lib/endpoints/secret-sealer.js';

const secret = 'the secret of an endpoint, 32 bytes and more';
const bytes = randomBytes(32);
const first = { id: '1', key: bytes.toString('base64') };
const second = { id: 'key/2.b', key: 'another sealing key, of more than 32 characters' };

describe('SecretSealer', () => {
  it.each<[string, typeof first]>([
    ['a plain id', first],
    ['an id with a dot', second],
  ])('decrypts what it has sealed with %s', (_, key) => {
    const sealer = new SecretSealer([key]);
    const sealed = sealer.seal('crm', 'kid', secret);

    expect(sealed).not.toContain(secret);
    expect(sealed.endsWith(`.${key.id}`)).toBe(true);
    expect(sealer.open('crm', { kid: 'kid', sealed })).toBe(secret);
    expect(sealer.seal('crm', 'kid', secret)).not.toBe(sealed);
  });

  it.each(['base64', 'base64url', 'hex'] as const)('reads a key of 32 bytes in %s', (form) => {
    const sealed = new SecretSealer([first]).seal('crm', 'kid', secret);
    const other = new SecretSealer([{ id: '1', key: bytes.toString(form) }]);

    expect(other.open('crm', { kid: 'kid', sealed })).toBe(secret);
  });

  it('decrypts with any of its keys, and seals with the first', () => {
    const sealed = new SecretSealer([first]).seal('crm', 'kid', secret);
    const both = new SecretSealer([second, first]);

    expect(both.open('crm', { kid: 'kid', sealed })).toBe(secret);
    expect(both.isCurrent({ sealed })).toBe(false);
    expect(both.isCurrent({ sealed: both.seal('crm', 'kid', secret) })).toBe(true);
  });

  const sealed = new SecretSealer([first]).seal('crm', 'kid', secret);
  const at = (index: number): string =>
    sealed.slice(0, index) + (sealed[index] === 'A' ? 'B' : 'A') + sealed.slice(index + 1);
  it.each<[string, string, string, string]>([
    ['another endpoint', 'cr', 'mkid', sealed],
    ['another kid', 'crm', 'kid2', sealed],
    ['a changed IV', 'crm', 'kid', at(4)],
    ['a changed ciphertext', 'crm', 'kid', at(30)],
    ['a changed tag', 'crm', 'kid', at(sealed.length - 5)],
    ['a truncated ciphertext', 'crm', 'kid', `${sealed.slice(0, -12)}.1`],
    ['a ciphertext that is too short', 'crm', 'kid', 'v1.AAAA.1'],
    ['another key', 'crm', 'kid', sealed.replace(/1$/, 'key/2.b')],
    ['a removed key', 'crm', 'kid', sealed.replace(/1$/, '0')],
    ['another format', 'crm', 'kid', sealed.replace('v1', 'v2')],
    ['nothing', 'crm', 'kid', ''],
  ])('does not decrypt %s', (_, id, kid, text) => {
    const sealer = new SecretSealer([first, second]);

    expect(() => sealer.open(id, { kid, sealed: text })).toThrow(
      expect.objectContaining({ code: 'sealed_secret_unreadable' }),
    );
  });

  it('hides its keys from inspect', () => {
    const printed = inspect(new SecretSealer([first, second]), { depth: 9, showHidden: true });

    for (const hidden of [first.key, second.key, bytes.toString('hex')])
      expect(printed).not.toContain(hidden);
  });
});

it.each<[string, unknown, RegExp | undefined]>([
  ['base64', bytes.toString('base64'), undefined],
  ['32 characters', 'x'.repeat(32), undefined],
  ['31 characters', 'x'.repeat(31), /has 31 bytes, and needs at least 32/],
  ['white space around it', ` ${'x'.repeat(32)}`, /white space/],
  ['a PEM', `-----BEGIN PUBLIC KEY-----${'A'.repeat(64)}`, /is a PEM or JWK key/],
  ['bytes', bytes, /must be a string/],
])('a sealing key of %s', (_, key, problem) => {
  if (problem === undefined) expect(sealingKeyProblem(key)).toBeUndefined();
  else expect(sealingKeyProblem(key)).toMatch(problem);
});
