import { gzipSync } from 'node:zlib';
import { Readable } from 'node:stream';
import { describe, expect, it } from '@jest/globals';
import type { WebhookReceiverOptions } from 'nestjs-webhook-token';
import { digest, type WebhookTokenInput } from 'nestjs-webhook-token/token';
import { forged } from '../fixtures/forged-token.js';
import {
  hashOf,
  hintsOf,
  ISSUER,
  MARKER,
  NOW,
  SECRET,
  tokenOf,
  verifierOf,
} from './receiver-bench.js';

const JSON_TYPE = { 'content-type': 'application/json' };

describe('an explanation of the claims', () => {
  it.each<[string, string, Partial<WebhookReceiverOptions>, string, Record<string, RegExp>]>([
    [
      'an expired token',
      tokenOf({}, { ahead: -400_000 }),
      {},
      'token_expired',
      { expired: /100 s ago.*60 s/, clock_behind: /400 s behind/, token_age: /issued 400 s ago/ },
    ],
    [
      'a clock ahead',
      tokenOf({}, { ahead: 90_000 }),
      {},
      'token_not_yet_valid',
      { clock_ahead: /90 s ahead/, token_age: /issued 90 s ahead/ },
    ],
    [
      'a lifetime that is too long',
      tokenOf({}, { lifetime: 86_400 }),
      {},
      'token_too_old',
      { lifetime: /86400 s.*3600 s/ },
    ],
    [
      'another audience',
      tokenOf({ audience: 'https://erp.example' }),
      { audience: 'https://crm.example' },
      'wrong_audience',
      { audience: /erp\.example.*crm\.example/ },
    ],
    [
      'an audience, if the receiver has none',
      tokenOf({ audience: 'https://erp.example' }),
      {},
      'wrong_audience',
      { audience: /has no audience/ },
    ],
    [
      'an event that the issuer may not send',
      tokenOf({ event: 'user.deleted' }),
      { issuers: [{ issuer: ISSUER, secret: SECRET, events: ['order.*'] }] },
      'event_forbidden',
      { events_allowed: /"order\.\*"/ },
    ],
  ])('measures %s', async (_, token, options, code, expected) => {
    const explanation = await verifierOf(options).explain({
      method: 'HEAD',
      headers: { authorization: `Bearer ${token}` },
    });
    const hints = hintsOf(explanation);

    expect(explanation.code).toBe(code);
    for (const [hint, detail] of Object.entries(expected)) expect(hints[hint]).toMatch(detail);
    expect(explanation.receipt?.authenticated).toBe(true);
  });
});

/** Explains a POST whose token names the digest of one body while another one arrives. */
async function explained(
  arrived: string | Buffer,
  claims: Partial<WebhookTokenInput>,
  headers: Record<string, string> = {},
) {
  const explanation = await verifierOf().explain({
    method: 'POST',
    headers: { authorization: `Bearer ${tokenOf(claims)}`, ...JSON_TYPE, ...headers },
    body: arrived,
  });
  expect(JSON.stringify(explanation)).not.toContain(MARKER);
  return { explanation, hints: hintsOf(explanation) };
}

const order = { id: 7, name: `Käufer/${MARKER}`, lines: [1, { a: null }] };
const compact = JSON.stringify(order);
const pretty = JSON.stringify(order, undefined, 2);

describe('an explanation of the body', () => {
  it.each<[string, string | Buffer, string | Buffer, string, RegExp]>([
    ['was indented', pretty, compact, 'body_reserialized', /parsed and re-serialised the body/],
    ['was compacted', compact, pretty, 'body_reserialized', /2 spaces/],
    ['lost its final line feed', compact, `${compact}\n`, 'body_newline', /with a line feed/],
    ['gained a final line feed', `${compact}\n`, compact, 'body_newline', /without the line feed/],
    [
      'lost indentation and line feed',
      compact,
      `${pretty}\n`,
      'body_reserialized',
      /2 spaces, with/,
    ],
    ['got other line endings', 'a\nb', 'a\r\nb', 'body_line_endings', /instead of line feeds/],
    ['lost its carriage returns', 'a\r\nb', 'a\nb', 'body_line_endings', /instead of carriage/],
    ['gained a byte order mark', `\uFEFF${compact}`, compact, 'body_bom', /without the byte/],
    [
      'was encoded twice',
      Buffer.from(Buffer.from(compact).toString('latin1')),
      compact,
      'body_charset',
      /before its UTF-8/,
    ],
    ['arrived as Latin-1', Buffer.from(compact, 'latin1'), compact, 'body_charset', /in UTF-8/],
    ['arrived compressed', gzipSync(compact), compact, 'body_compressed', /gzip/],
    [
      'was serialised twice',
      JSON.stringify(compact),
      compact,
      'body_reserialized',
      /serialised twice/,
    ],
    [
      'was written by Python',
      compact,
      `{"id": 7, "name": "K\\u00e4ufer/${MARKER}", "lines": [1, {"a": null}]}`,
      'body_reserialized',
      /Python/,
    ],
    [
      'was written by PHP',
      compact,
      compact.replace('ä', '\\u00e4').replace('/', '\\/'),
      'body_reserialized',
      /PHP/,
    ],
    ['was dropped', '', compact, 'body_dropped', /dropped on the way/],
    ['was digested too early', compact, '', 'body_added', /empty body/],
  ])('that %s', async (_, arrived, signed, code, detail) => {
    const { explanation, hints } = await explained(arrived, { hash: hashOf(signed) });

    expect(explanation.code).toBe('hash_mismatch');
    expect(hints['body_digest']).toContain(hashOf(arrived));
    expect(hints['body_digest']).toContain(hashOf(signed));
    expect(hints[code]).toMatch(detail);
  });

  it('whose digest has the name of another algorithm', async () => {
    const hash = digest('sha3-256', Buffer.from(compact)).replace('sha3-256', 'sha256');
    const { hints } = await explained(compact, { hash });

    expect(hints['digest_algorithm']).toMatch(/is the sha3-256 of the body/);
  });

  it.each([
    ['base64', (hex: string) => `sha256:${Buffer.from(hex, 'hex').toString('base64')}`],
    ['no name before it', (hex: string) => hex],
    ['the name of RFC 6920', (hex: string) => `sha-256:${hex}`],
    ['an equals sign', (hex: string) => `sha256=${hex}`],
  ])('whose digest is right, with %s', async (_, spell) => {
    const iat = NOW / 1_000;
    const hash = spell(hashOf(compact).slice('sha256:'.length));
    const webhook = { event: 'order.created', hash };
    const token = forged({ claims: { iat, exp: iat + 60, webhook }, secret: SECRET });
    const explanation = await verifierOf().explain({
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, ...JSON_TYPE },
      body: compact,
    });

    expect(explanation.code).toBe('hash_unsupported');
    expect(hintsOf(explanation)['digest_encoding']).toMatch(/write "sha256:" and 64/);
  });

  it('that resembles no known form', async () => {
    const { hints } = await explained('{"other":1}', { hash: hashOf(compact) });

    expect(Object.keys(hints)).toEqual(['body_digest']);
  });

  it('that no hash covers, and whose length differs from the declared one', async () => {
    const { explanation, hints } = await explained(compact, {}, { 'content-length': '3' });

    expect(explanation.code).toBe('hash_required');
    expect(hints['body_unauthenticated']).toMatch(/neither hash nor data/);
    expect(hints['body_length']).toMatch(/declares 3 bytes/);
  });

  it('whose token was sent by HEAD', async () => {
    const explanation = await verifierOf().explain({
      method: 'HEAD',
      headers: { authorization: `Bearer ${tokenOf({ hash: hashOf(compact) })}` },
    });

    expect(explanation.code).toBe('hash_unsupported');
    expect(hintsOf(explanation)['hash_on_head']).toMatch(/made for a POST/);
  });

  it('that is a stream: complete, too large or broken', async () => {
    const request = (body: Readable) => ({
      method: 'POST',
      headers: { authorization: `Bearer ${tokenOf({ hash: hashOf(compact) })}`, ...JSON_TYPE },
      body,
    });
    const broken = new Readable({
      read() {
        this.destroy(new Error('reset'));
      },
    });
    const small = verifierOf({ maxBodyBytes: 8 });

    expect(await verifierOf().explain(request(Readable.from([compact])))).toMatchObject({
      verdict: 'accepted',
    });
    expect(await small.explain(request(Readable.from([compact, compact])))).toMatchObject({
      code: 'payload_too_large',
      status: 413,
    });
    expect(await verifierOf().explain(request(broken))).toMatchObject({
      code: 'payload_incomplete',
    });
  });

  it('that is authentic, but is not JSON', async () => {
    const { explanation } = await explained('{"a"', { hash: hashOf('{"a"') });

    expect(explanation.steps.find(({ outcome }) => outcome === 'failed')).toMatchObject({
      step: 'payload',
      code: 'invalid_payload',
    });
  });
});

describe('an explanation of another method', () => {
  it('checks nothing else', async () => {
    const explanation = await verifierOf().explain({ method: 'PUT', headers: {} });

    expect(explanation).toMatchObject({
      verdict: 'refused',
      code: 'method_not_allowed',
      status: 405,
    });
    expect(explanation.steps.filter(({ outcome }) => outcome === 'passed')).toEqual([]);
    expect(explanation.receipt).toBeUndefined();
  });
});
