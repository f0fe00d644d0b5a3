import { describe, expect, it } from '@jest/globals';
import { createTokenSigner } from 'nestjs-webhook-token/token';
import { excerptOf } from '../../lib/sending/answer-excerpt.js';

const token = createTokenSigner({
  issuer: 'https://billing.example',
  key: 'correct-horse-battery-staple-0001',
}).sign({ event: 'order.created', data: { n: 'a value that is somebody’s' } }) as string;
const another = createTokenSigner({
  issuer: 'https://shop.example',
  key: 'correct-horse-battery-staple-0002',
}).sign({ event: 'order.created' }) as string;

const secrets = {
  tokens: [token],
  url: 'https://crm.example/hooks/T0/B1?key=s3cr3t%2Fvalue',
  headers: { 'X-Api-Key': 'Key-0123456789-abcdef', Accept: 'application/json' },
};

function excerpt(
  body: string | Uint8Array,
  contentType: string | undefined = 'text/plain',
  contentEncoding?: string,
): string | undefined {
  const octets = typeof body === 'string' ? Buffer.from(body) : body;
  return excerptOf({ octets, contentType, contentEncoding }, secrets);
}

const escapes: [string, (text: string) => string][] = [
  ['percent encoding', (text) => each(text, (hex) => `%${hex}`)],
  ['percent encoding in upper case', (text) => each(text, (hex) => `%${hex.toUpperCase()}`)],
  ['percent encoding, twice', (text) => each(text, (hex) => `%25${hex}`)],
  ['JSON escapes', (text) => each(text, (hex) => `\\u00${hex}`)],
  ['JSON escapes within JSON', (text) => each(text, (hex) => `\\\\u00${hex}`)],
  ['JavaScript escapes', (text) => each(text, (hex) => `\\x${hex}`)],
  ['HTML entities', (text) => each(text, (hex) => `&#x${hex};`)],
  ['decimal HTML entities', (text) => each(text, (hex) => `&#${parseInt(hex, 16)};`)],
];

describe('excerptOf', () => {
  it.each<[string, string, string]>([
    ['as sent', token, '[token]'],
    ['in its header', `{"authorization":"Bearer ${token}"}`, '{"authorization":"Bearer [token]"}'],
    ['in lower case', `bearer ${token.toLowerCase()}!`, 'bearer [token]!'],
    ['in upper case', `BEARER ${token.toUpperCase()}!`, 'BEARER [token]!'],
    ['of another issuer', `not ${another}, thanks`, 'not [token], thanks'],
    ['several times', `${token} ${another} ${token}`, '[token] [token] [token]'],
    ['after a letter', `x${token}`, '[token]'],
  ])('redacts a token: %s', (_, body, expected) => {
    expect(excerpt(body)).toBe(expected);
  });

  it.each(escapes)('redacts a token behind %s', (_, escape) => {
    expect(excerpt(`got ${escape(token)} there`)).toBe('got [token] there');
    const dots = token.replaceAll('.', (dot) => escape(dot));
    expect(excerpt(`got ${dots} there`)).toBe('got [token] there');
  });

  it('redacts each part of a token, and parts that are cut', () => {
    const [header, payload, signature] = token.split('.') as [string, string, string];
    const body = JSON.stringify({ header, payload, signature, begins: token.slice(0, 40) });

    expect(JSON.parse(excerpt(body, 'application/json')!)).toEqual({
      header: '[token]',
      payload: '[token]',
      signature: '[token]',
      begins: '[token]',
    });
  });

  it('redacts a token that is broken into lines', () => {
    const lines = token.match(/.{1,64}/g)!.join('\r\n');
    const kept = excerpt(lines)!;

    for (let at = 0; at + 16 <= token.length; at++) {
      expect(kept).not.toContain(token.slice(at, at + 16));
    }
  });

  it.each([0, 1, 500, 1_000, 1_010, 1_020, 1_023])(
    'leaves no part of a token that begins at byte %d and crosses the limit',
    (begin) => {
      const kept = excerpt(`${'-'.repeat(begin - 1 < 0 ? 0 : begin - 1)} ${token} behind`)!;

      expect(kept).not.toMatch(/ey[\w-]{3}/);
      expect(Buffer.byteLength(kept)).toBeLessThanOrEqual(1_024);
    },
  );

  it('redacts path and query of the URL, and keys in headers', () => {
    const answers = [
      'Cannot POST /hooks/T0/B1?key=s3cr3t%2Fvalue here',
      'Cannot POST \\/hooks\\/T0\\/B1?key=s3cr3t/value here',
      'Cannot POST /hooks/T0/B1 here',
      'Key was KEY-0123456789-ABCDEF',
      'accept: application/json',
    ];

    expect(answers.map((body) => excerpt(body))).toEqual([
      'Cannot POST [url] here',
      'Cannot POST [url] here',
      'Cannot POST [url] here',
      'Key was [header]',
      'accept: application/json',
    ]);
  });

  it('redacts parts of the URL that may be keys by themselves, and parts of credentials', () => {
    const body = JSON.stringify({
      args: { key: 's3cr3t/value', mode: 'live' },
      hook: 'B1-0123456789-abcdefgh',
      token: 'Bearer ATq7Zx91LmPw83kdYt55...',
    });
    const octets = Buffer.from(body);
    const answer = { octets, contentType: 'application/json', contentEncoding: undefined };
    const url = 'https://crm.example/hooks/B1-0123456789-abcdefgh?key=s3cr3t%2Fvalue&mode=live';
    const credentials = ['ATq7Zx91LmPw83kdYt55RvBn20q7Zx91L'];
    const shown = excerptOf(answer, { ...secrets, url, credentials });

    expect(JSON.parse(shown!)).toEqual({
      args: { key: '[url]', mode: 'live' },
      hook: '[url]',
      token: 'Bearer [token]...',
    });
  });

  it.each<[string, string, string]>([
    ['a space at its end', 'abc-123 ', 'key abc-123!'],
    ['a tab at its end', 'k3y+aB/cD9\t', 'key k3y+aB/cD9!'],
    ['a quote in JSON', 'p"w-123', String.raw`key p\"w-123!`],
    ['a backslash in JSON', String.raw`p\w-123`, String.raw`key p\\w-123!`],
    ['a backslash at its end in JSON', 'pw-123\\', String.raw`key pw-123\\!`],
    ['a quote in JSON within JSON', 'p"w-123', String.raw`key p\\\"w-123!`],
    ['a quote in HTML', 'p"w-123', 'key p&quot;w-123!'],
    ['an ampersand in HTML', 'p&w-123', 'key p&amp;w-123!'],
    ['angle brackets in HTML', 'p<w>-123', 'key p&lt;w&gt;-123!'],
    ['an apostrophe in XML', "p'w-123", 'key p&apos;w-123!'],
    ['a part that looks like an escape', 'p%41w-123', 'key p%41w-123!'],
    ['a part that looks like an entity', 'p&amp;w-123', 'key p&amp;w-123!'],
    ['a part that looks like an entity, in HTML', 'p&amp;w-123', 'key p&amp;amp;w-123!'],
  ])('redacts a secret value with %s', (_, value, body) => {
    const answer = {
      octets: Buffer.from(body),
      contentType: 'text/plain',
      contentEncoding: undefined,
    };

    expect(excerptOf(answer, { ...secrets, credentials: [value] })).toBe('key [header]!');
  });

  it('redacts answers that repeat what the URL and the headers repeat', () => {
    const octets = Buffer.from('a'.repeat(65_536));
    const answer = { octets, contentType: 'text/plain', contentEncoding: undefined };
    const segments = Array.from({ length: 40 }, (_, index) => 'a'.repeat(17 + index));
    const url = `https://crm.example/${segments.join('/')}?key=${'a'.repeat(8)}`;
    const credentials = Array.from({ length: 200 }, () => 'a');

    expect(excerptOf(answer, { ...secrets, url, credentials })).toBe('[url]');
  });

  it('keeps text that only resembles a token', () => {
    for (const body of ['v1.2.3', 'my.service.example.com', 'a%20b &amp; c', '100 % \\ sure']) {
      expect(excerpt(body)).toBe(body);
    }
  });

  it('returns at most 1024 bytes, in whole characters', () => {
    expect(excerpt('x'.repeat(5_000))).toBe('x'.repeat(1_024));
    expect(excerpt(`x${'ä'.repeat(5_000)}`)).toBe(`x${'ä'.repeat(511)}`);
    expect(excerpt(`xx${'🧾'.repeat(5_000)}`)).toBe(`xx${'🧾'.repeat(255)}`);
  });

  it('replaces control characters and line breaks', () => {
    expect(excerpt('a\r\nb\tc\u001b[31md\u0085e\u2028f\u202eg\u007fh')).toBe(
      'a  b c\ufffd[31md e f\ufffdg\ufffdh',
    );
    expect(excerpt('Grüße 🧾')).toBe('Grüße 🧾');
  });

  it.each<[string, Uint8Array | string, string | undefined, string | undefined]>([
    ['an image', Buffer.from([137, 80, 78, 71]), 'image/png', undefined],
    ['a string with NUL', 'a\0bc', 'text/plain', undefined],
    ['compressed text', 'abcd', 'text/plain', 'gzip'],
  ])('reports the size of %s', (_, body, type, encoding) => {
    expect(excerpt(body, type, encoding)).toBe('[4 bytes that are not text]');
  });

  it.each([
    'text/html; charset=utf-8',
    'application/json',
    'application/problem+json',
    'application/xml',
    'application/vnd.api+json; v=1',
  ])('reads %s as text', (type) => {
    expect(excerpt('words', type)).toBe('words');
  });

  it('reads an answer without a content type as text if it is UTF-8', () => {
    const ofNoType = (octets: Uint8Array): string | undefined =>
      excerptOf({ octets, contentType: undefined, contentEncoding: undefined }, secrets);

    expect(ofNoType(Buffer.from('später'))).toBe('später');
    expect(ofNoType(Buffer.from([0xff, 0xfe, 0xc0, 0xc1]))).toBe('[4 bytes that are not text]');
  });

  it('returns nothing for an empty body', () => {
    expect(excerpt('')).toBeUndefined();
  });

  it('stays fast on a hostile body', () => {
    for (const piece of [
      'a',
      'a.',
      `${'a'.repeat(16)}.`,
      '%',
      '\\u002',
      '&#0',
      '\\',
      '&amp;',
      `${token.slice(0, 15)}!`,
    ]) {
      const body = piece.repeat(65_536 / piece.length);
      expect(Buffer.byteLength(excerpt(body)!)).toBeLessThanOrEqual(1_024);
    }
  });
});

function each(text: string, write: (hex: string) => string): string {
  return text.replace(/[^]/g, (letter) => write(letter.charCodeAt(0).toString(16)));
}
