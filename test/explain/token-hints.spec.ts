import { describe, expect, it } from '@jest/globals';
import type { WebhookReceiverOptions } from 'nestjs-webhook-token';
import { forged } from '../fixtures/forged-token.js';
import { hintsOf, ISSUER, MARKER, SECRET, tokenOf, verifierOf } from './receiver-bench.js';

const data = { note: MARKER };
const token = tokenOf({ data });
const [header, claims, signature] = token.split('.') as [string, string, string];

describe('an explanation of the Authorization header', () => {
  it.each<[string, Record<string, string | string[]>, string[]]>([
    ['without a value', {}, ['authorization_missing']],
    [
      'moved by a proxy',
      { 'x-forwarded-authorization': `Bearer ${token}` },
      ['authorization_moved'],
    ],
    ['twice', { authorization: [`Bearer ${token}`, 'Basic eA=='] }, ['authorization_repeated']],
    ['joined', { authorization: `Bearer ${token}, Bearer ${token}` }, ['authorization_repeated']],
    ['without scheme', { authorization: token }, ['scheme_missing']],
    ['doubled', { authorization: `Bearer Bearer ${token}` }, ['scheme_doubled']],
    ['with a colon', { authorization: `Bearer: ${token}` }, ['scheme_other']],
    ['of another scheme', { authorization: `JWT ${token}` }, ['scheme_other']],
    ['quoted', { authorization: `Bearer "${token}"` }, ['token_quoted']],
    ['quoted whole', { authorization: `'Bearer ${token}'` }, ['token_quoted']],
    ['URL-encoded', { authorization: `Bearer%20${token}` }, ['token_url_encoded']],
    ['quoted without scheme', { authorization: `"${token}"` }, ['token_quoted', 'scheme_missing']],
    ['wrapped', { authorization: `Bearer ${header}.\n ${claims}.${signature}` }, ['token_split']],
    ['padded', { authorization: `Bearer ${token}=` }, ['token_padded']],
  ])('%s', async (_, headers, expected) => {
    const explanation = await verifierOf().explain({ method: 'HEAD', headers });
    const hints = hintsOf(explanation);

    expect(explanation.verdict).toBe('refused');
    for (const code of expected) {
      expect(Object.keys(hints)).toContain(code);
      if (!code.startsWith('authorization_m')) {
        expect(hints[code]).toMatch(/once repaired, the signature is valid$/);
      }
    }
    expect(JSON.stringify(explanation)).not.toContain(MARKER);
    expect(JSON.stringify(explanation)).not.toContain(claims);
  });

  it('says if repairing it does not help', async () => {
    const foreign = tokenOf({}, { key: 'the-key-of-another-party-entirely' });
    const explanation = await verifierOf().explain({
      method: 'HEAD',
      headers: { authorization: foreign },
    });

    expect(hintsOf(explanation)['scheme_missing']).toMatch(/the signature is not valid$/);
    expect(explanation.receipt).toMatchObject({ authenticated: false, issuer: ISSUER });
  });

  const MANY = 1_000_000;
  it.each([
    ['equals signs', `Bearer a.b.${'='.repeat(MANY)}x`],
    ['colons', `Basic${':'.repeat(MANY)}x`],
    ['colons before a part', `Basic${':'.repeat(MANY / 2)}a.${'x'.repeat(MANY / 2)}`],
    ['dots', `Basic ${'.'.repeat(MANY)}x`],
    ['spaces', `Bearer${' '.repeat(MANY)}x y`],
    ['commas', `Bearer a${', '.repeat(MANY / 2)}x`],
    ['quotes', `Bearer ${'"'.repeat(MANY)}x`],
    ['percent signs', `Bearer ${'%20'.repeat(MANY / 4)}x`],
    ['schemes', 'Bearer '.repeat(MANY / 7)],
  ])('takes linear time for many %s', async (_, authorization) => {
    const explanation = await verifierOf().explain({ method: 'HEAD', headers: { authorization } });

    expect(explanation).toMatchObject({ verdict: 'refused', status: expect.any(Number) });
  });

  it('takes linear time for an issuer with many slashes', async () => {
    const hostile = forged({ claims: { iss: `${'/'.repeat(11_000)}x` } });

    for (let i = 0; i < 200; i++) {
      const explanation = await verifierOf().explain({
        method: 'HEAD',
        headers: { authorization: `Bearer ${hostile}` },
      });
      expect(hintsOf(explanation)).toHaveProperty('issuer_unknown');
    }
  });

  it('accepts a scheme in lower case', async () => {
    const explanation = await verifierOf().explain({
      method: 'head',
      headers: new Headers({ authorization: `bearer ${token}` }),
    });

    expect(explanation).toMatchObject({ verdict: 'accepted', hints: [] });
  });
});

describe('an explanation of the signature', () => {
  const HEX = 'b5bb9d8014a0f9b1d61e21e796d78dccdf1352f23cd32812f4850b878ae4944c';
  const bytes = Buffer.from(HEX, 'hex');

  it.each<[string, string, string | Buffer, RegExp]>([
    ['a line feed at its end', SECRET, Buffer.from(`${SECRET}\n`), /line feed is added to the end/],
    ['a space before it', SECRET, Buffer.from(` ${SECRET}`), /space is added to the start/],
    ['quotes around it', SECRET, `"${SECRET}"`, /double quotes/],
    [
      'its string as bytes',
      `whsec_${bytes.toString('base64')}`,
      Buffer.from(`whsec_${bytes.toString('base64')}`),
      /"whsec_…" itself/,
    ],
    [
      'its base64 string as bytes',
      `whsec_${bytes.toString('base64')}`,
      Buffer.from(bytes.toString('base64')),
      /base64 string/,
    ],
    [
      'base64 decoded',
      bytes.toString('base64'),
      bytes,
      /decoded from base64$|decoded from base64:/,
    ],
    ['hexadecimal decoded', HEX, bytes, /decoded from hexadecimal/],
  ])('recognises a secret with %s', async (_, ours, theirs, premise) => {
    const explanation = await verifierOf({ issuers: [{ issuer: ISSUER, secret: ours }] }).explain({
      method: 'HEAD',
      headers: { authorization: `Bearer ${tokenOf({ data }, { key: theirs })}` },
    });
    const text = JSON.stringify(explanation);

    expect(explanation.code).toBe('bad_signature');
    expect(hintsOf(explanation)['secret_form']).toMatch(premise);
    for (const secret of [ours, theirs.toString(), bytes.toString('base64'), HEX]) {
      expect(text).not.toContain(secret.trim());
    }
  });

  it('recognises a receiver whose secret was read with its line feed', async () => {
    const explanation = await verifierOf({
      issuers: [{ issuer: ISSUER, secret: Buffer.from(`${SECRET}\n`) }],
    }).explain({ method: 'HEAD', headers: { authorization: `Bearer ${token}` } });

    expect(hintsOf(explanation)['secret_form']).toMatch(/this receiver's secret is removed/);
  });

  const OTHER = 'https://billing.example';
  const two: WebhookReceiverOptions['issuers'] = [
    {
      issuer: ISSUER,
      keys: [
        { kid: 'old', key: SECRET },
        { kid: 'new', key: `${SECRET}-new` },
      ],
    },
    { issuer: OTHER, secret: `${SECRET}-billing` },
  ];

  it.each<[string, string, string, string, RegExp]>([
    [
      'another kid',
      tokenOf({}, { key: { kid: 'new', key: SECRET } }),
      'bad_signature',
      'other_key',
      /key "old"/,
    ],
    [
      'an unknown kid',
      tokenOf({}, { key: { kid: 'k9', key: SECRET } }),
      'unknown_key',
      'kid_unknown',
      /"k9".*"old", "new"/,
    ],
    [
      'an unknown kid of a known key',
      tokenOf({}, { key: { kid: 'k9', key: SECRET } }),
      'unknown_key',
      'other_key',
      /key "old"/,
    ],
    [
      'the key of another issuer',
      tokenOf({}, { key: `${SECRET}-billing` }),
      'bad_signature',
      'other_issuer',
      /billing\.example/,
    ],
    [
      'the wrong name',
      tokenOf({}, { issuer: 'x', key: SECRET }),
      'wrong_issuer',
      'issuer_unknown',
      /"x"/,
    ],
    [
      'the wrong name of a known key',
      tokenOf({}, { issuer: 'x', key: SECRET }),
      'wrong_issuer',
      'other_issuer',
      /shop\.example/,
    ],
    [
      'an additional slash',
      tokenOf({}, { issuer: `${ISSUER}/` }),
      'wrong_issuer',
      'issuer_nearly',
      /shop\.example\/"; did you mean "https:\/\/shop\.example"/,
    ],
    [
      'another algorithm',
      tokenOf({}, { key: { alg: 'HS384', kid: 'old', key: `${SECRET}${SECRET}` } }),
      'invalid_token',
      'algorithm_mismatch',
      /"HS384".*HS256/,
    ],
  ])('recognises %s', async (_, presented, code, hint, detail) => {
    const explanation = await verifierOf({ issuers: two }).explain({
      method: 'HEAD',
      headers: { authorization: `Bearer ${presented}` },
    });

    expect(explanation.code).toBe(code);
    expect(hintsOf(explanation)[hint]).toMatch(detail);
    expect(explanation.receipt?.authenticated).toBe(false);
  });

  it('hides a name that could control a terminal', async () => {
    const name = '\u001b[2Jpwned';
    const forged = `${header}.${Buffer.from(JSON.stringify({ iss: name })).toString('base64url')}.${signature}`;
    const explanation = await verifierOf({ issuers: two }).explain({
      method: 'HEAD',
      headers: { authorization: `Bearer ${forged}` },
    });

    expect(hintsOf(explanation)['issuer_unknown']).toMatch(/a name that cannot be shown/);
    expect(JSON.stringify(explanation)).not.toContain('pwned');
  });
});
