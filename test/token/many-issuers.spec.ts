import { describe, expect, it, jest } from '@jest/globals';
import {
  type TrustedIssuer,
  createTokenSigner,
  createTokenVerifier,
} from 'nestjs-webhook-token/token';
import type { KeyRing } from '../../lib/token/keys/token-keys.js';

const secretOf = (n: number): string => `the-secret-of-issuer-number-${n}-alone`;
const issuerOf = (n: number): string => `https://shop-${n}.example`;

/** Counts the lookups and the keys tried for one verification among this many issuers. */
function workAmong(count: number): { lookUps: number; walks: number; tried: number } {
  const trusted = Array.from({ length: count }, (_, n): TrustedIssuer => {
    return { issuer: issuerOf(n), secret: secretOf(n) };
  });
  const verifier = createTokenVerifier({ issuers: trusted });
  const ring = verifier.settings.keys as KeyRing;
  const last = count - 1;
  const signer = createTokenSigner({ issuer: issuerOf(last), key: secretOf(last) });
  const token = signer.sign({ event: 'order.created' }) as string;
  const of = jest.spyOn(ring, 'of');
  const walks = (['forEach', 'values', 'entries', 'keys'] as const).map((name) =>
    jest.spyOn(Map.prototype, name),
  );
  const keys = ring.of(issuerOf(last))!.candidates(undefined, 0) as readonly object[];
  of.mockClear();
  try {
    expect(verifier.verify(token)).toMatchObject({ claims: { iss: issuerOf(last) } });
    return {
      lookUps: of.mock.calls.length,
      walks: walks.reduce((sum, spy) => sum + spy.mock.calls.length, 0),
      tried: keys.length,
    };
  } finally {
    for (const spy of [of, ...walks]) spy.mockRestore();
  }
}

describe('ten thousand issuers', () => {
  it('take no longer to verify than two', () => {
    expect(workAmong(10_000)).toEqual(workAmong(2));
    expect(workAmong(10_000)).toEqual({ lookUps: 1, walks: 0, tried: 1 });
  });
});
