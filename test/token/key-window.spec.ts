import { describe, expect, it } from '@jest/globals';
import {
  createTokenSigner,
  createTokenVerifier,
  WebhookConfigurationError,
  type TokenVerifier,
  type TokenVerifierOptions,
  type WebhookKey,
} from '../../lib/token/index.js';

const ISSUER = 'https://shop.example';
const SECRET = 'a-secret-of-this-test-alone-long-enough-for-all-its-keys';
const FROM = Date.parse('2026-03-01T00:00:00Z') / 1_000;
const UNTIL = Date.parse('2026-06-01T00:00:00Z') / 1_000;
const WINDOW = { notBefore: '2026-03-01T00:00:00Z', notAfter: '2026-06-01T00:00:00Z' };

/** Verifies a token at the time when it was signed. */
function codeAt(
  seconds: number,
  keys: readonly WebhookKey[],
  signedWith: WebhookKey = keys[0]!,
  options: Partial<TokenVerifierOptions> = {},
): string {
  const now = (): number => seconds;
  const { kid, key } = signedWith;
  const signer = createTokenSigner({ issuer: ISSUER, key: { kid, key }, now });
  const verifier: TokenVerifier = createTokenVerifier({
    issuers: [{ issuer: ISSUER, keys }],
    now,
    ...options,
  });
  try {
    void verifier.verify(signer.sign({ event: 'order.created' }) as string);
    return 'accepted';
  } catch (error) {
    return (error as { code: string }).code;
  }
}

function problemOf(...keys: object[]): string | undefined {
  try {
    createTokenVerifier({ issuers: [{ issuer: ISSUER, keys: keys as WebhookKey[] }] });
    return undefined;
  } catch (error) {
    return (error as WebhookConfigurationError).problems[0]?.message;
  }
}

describe('the window of a key', () => {
  const key = { kid: 'a', key: SECRET, ...WINDOW };

  it.each<[string, number, string]>([
    ['is closed a second before the tolerance opens it', FROM - 61, 'unknown_key'],
    ['is open as soon as the tolerance opens it', FROM - 60, 'accepted'],
    ['is open when it begins', FROM, 'accepted'],
    ['is open a second before its end', UNTIL - 1, 'accepted'],
    ['is closed at its end, without tolerance', UNTIL, 'unknown_key'],
    ['is closed a second later', UNTIL + 1, 'unknown_key'],
  ])('%s', (_, seconds, code) => {
    expect(codeAt(seconds, [key])).toBe(code);
    // The same holds for a key without a kid.
    expect(codeAt(seconds, [{ key: SECRET, ...WINDOW }])).toBe(code);
  });

  it('opens exactly on time without clock tolerance', () => {
    expect(codeAt(FROM - 1, [key], key, { clockTolerance: 0 })).toBe('unknown_key');
    expect(codeAt(FROM, [key], key, { clockTolerance: 0 })).toBe('accepted');
  });

  it.each<[string, object]>([
    ['a Date', { notBefore: new Date(FROM * 1_000), notAfter: new Date(UNTIL * 1_000) }],
    ['a day', { notBefore: '2026-03-01', notAfter: '2026-06-01' }],
    ['an offset', { notBefore: '2026-03-01T02:00+02:00', notAfter: '2026-05-31T22:00:00-02:00' }],
  ])('may be written as %s', (_, window) => {
    const written = { kid: 'a', key: SECRET, ...window };

    expect(codeAt(FROM - 61, [written])).toBe('unknown_key');
    expect(codeAt(FROM - 60, [written])).toBe('accepted');
    expect(codeAt(UNTIL - 1, [written])).toBe('accepted');
    expect(codeAt(UNTIL, [written])).toBe('unknown_key');
  });

  it('applies to its own key only', () => {
    const old = { kid: 'old', key: SECRET, notAfter: WINDOW.notAfter };
    const next = { kid: 'next', key: `${SECRET}-2`, notBefore: WINDOW.notBefore };
    const always = { key: `${SECRET}-3` };
    const keys = [old, next, always];

    expect(keys.map((one) => codeAt(FROM - 61, keys, one))).toEqual([
      'accepted',
      // Its kid is not known yet, so the keys without a kid are tried.
      'bad_signature',
      'accepted',
    ]);
    expect(keys.map((one) => codeAt(FROM, keys, one))).toEqual(Array(3).fill('accepted'));
    expect(keys.map((one) => codeAt(UNTIL, keys, one))).toEqual([
      'bad_signature',
      'accepted',
      'accepted',
    ]);
  });

  it.each<[string, object, string]>([
    ['seconds', { notAfter: UNTIL }, 'notAfter must be a Date'],
    ['milliseconds', { notBefore: UNTIL * 1_000 }, 'notBefore must be a Date'],
    ['a local time', { notAfter: '2026-06-01T00:00:00' }, 'with an offset'],
    ['a date in another format', { notAfter: 'June 1, 2026' }, 'ISO 8601'],
    ['an impossible day', { notAfter: '2026-02-30' }, 'ISO 8601'],
    ['an impossible month', { notAfter: '2026-13-01T00:00:00Z' }, 'ISO 8601'],
    ['an impossible hour', { notAfter: '2026-06-01T25:00:00Z' }, 'ISO 8601'],
    ['an invalid Date', { notAfter: new Date('soon') }, 'notAfter must be a Date'],
    ['null', { notAfter: null }, 'notAfter must be a Date'],
    [
      'an end before its beginning',
      { notBefore: '2026-06-01', notAfter: '2026-03-01' },
      'later than',
    ],
    ['an empty window', { notBefore: '2026-06-01', notAfter: '2026-06-01' }, 'later than'],
  ])('is refused if it is %s', (_, window, remedy) => {
    expect(problemOf({ key: SECRET, ...window })).toContain(remedy);
  });

  it('may have closed before start-up, as after a rotation', () => {
    expect(problemOf({ key: SECRET, notAfter: '2001-01-01' })).toBeUndefined();
  });
});

describe('keys without a kid', () => {
  const month = (n: number): string => `2026-${String(n).padStart(2, '0')}-01`;
  const monthly = (n: number, months: number): WebhookKey => ({
    key: `${SECRET}-${n}`,
    notBefore: month(n),
    notAfter: month(n + months),
  });

  it('are limited to four at a time', () => {
    const overlapping = Array.from({ length: 8 }, (_, i) => monthly(i + 1, 3));

    expect(problemOf(...overlapping)).toBeUndefined();
    for (const [i, key] of overlapping.entries()) {
      expect(codeAt(Date.parse(month(i + 1)) / 1_000, overlapping, key)).toBe('accepted');
    }
    expect(problemOf(...Array.from({ length: 8 }, (_, i) => monthly(i + 1, 4)))).toContain(
      'more than 4 keys without kid',
    );
  });

  it('are all tried if there are four', () => {
    const keys = [1, 2, 3, 4].map((n) => ({ key: `${SECRET}-${n}` }));

    for (const key of keys) expect(codeAt(FROM, keys, key)).toBe('accepted');
  });

  it('are counted from when the tolerance opens their windows', () => {
    // Three are valid to the end of the fourth month, when the next two begin.
    const before = [1, 2, 3].map((n) => monthly(n, 5 - n));
    const after = [5, 5].map((n, i) => ({ ...monthly(n, 1), key: `${SECRET}-after-${i}` }));

    expect(problemOf(...before, ...after)).toContain('more than 4 keys without kid');
    expect(problemOf(...before, after[0]!)).toBeUndefined();
  });
});
