import { createHash, createHmac } from 'node:crypto';

/** A small seeded random generator (mulberry32): the same seed gives the same run on every machine. */
export class Chance {
  constructor(seed) {
    this.state = seed | 0;
  }

  /** A number in [0, 1). */
  next() {
    this.state = (this.state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  below(bound) {
    return Math.floor(this.next() * bound);
  }

  pick(from) {
    return from[this.below(from.length)];
  }

  /** True with a probability of 1 in n. */
  oneIn(times) {
    return this.below(times) === 0;
  }

  bytes(length) {
    return Buffer.from(Array.from({ length }, () => this.below(256)));
  }
}

/** Part of all secret and personal data; no message may contain it. */
export const CANARY = 'canary-0f3a';

export const NOW = 1_760_000_000;
export const ISSUER = 'https://shop.example';
export const SECRET = `${CANARY}-secret-of-the-fuzzer-64-bytes-so-that-it-serves-every-algorithm`;

const BODY = Buffer.from(JSON.stringify({ note: CANARY }));

const TEXTS = ['', 'x', CANARY, 'order.created', 'a.b.c', '__proto__', 'constructor', 'JWT', 'SWT'];
const MORE_TEXTS = [
  'sha256:00',
  'HS256',
  'none',
  '\u0000',
  '\ud800',
  '\u2028',
  'é',
  '😀',
  'A'.repeat(300),
];
const NUMBERS = [0, -0, 1, -1, 0.5, NOW, NOW + 300, NOW * 1_000, 1e11, 1e300, -1e300, 2 ** 53];
const NAMES = ['iss', 'sub', 'aud', 'exp', 'nbf', 'iat', 'jti', 'txn', 'webhook', 'event', 'data'];
const MORE_NAMES = [
  'hash',
  'hashAlg',
  'size',
  'retry_count',
  'alg',
  'typ',
  'kid',
  'crit',
  'b64',
  'jwk',
];
const ODD_NAMES = [
  'zip',
  '__proto__',
  'constructor',
  'prototype',
  'toString',
  'then',
  '',
  '\u0000',
  'x',
];
const ALL_NAMES = [...NAMES, ...MORE_NAMES, ...ODD_NAMES];
const GRAMMAR = [
  '{',
  '}',
  '[',
  ']',
  ':',
  ',',
  '"',
  '\\',
  '"a"',
  '"webhook"',
  '"data":',
  '1e400',
  '-',
  '0',
  '.5',
];
const MORE_GRAMMAR = [
  'null',
  'true',
  'NaN',
  ' ',
  '\n',
  '\t',
  '\ufeff',
  '"\\u0061"',
  '"\\ud800"',
  '{}',
  '[]',
  '//',
];
const ALL_GRAMMAR = [...GRAMMAR, ...MORE_GRAMMAR];
const ASCII_NOISE = 'AZaz09-_=+/. \n\r\t%'.split('');
const TOKEN_NOISE = [...ASCII_NOISE, 'é', 'Ł', '😀', '\u0000', '..', '=='];

/** Any JSON value, including ones that JSON.stringify cannot produce. */
export function anyValue(chance, depth = 0) {
  switch (chance.below(depth > 4 ? 5 : 9)) {
    case 0:
      return null;
    case 1:
      return chance.oneIn(2);
    case 2:
      return chance.pick(NUMBERS);
    case 3:
      return chance.pick(TEXTS);
    case 4:
      return chance.pick(MORE_TEXTS);
    case 5:
      return Array.from({ length: chance.below(4) }, () => anyValue(chance, depth + 1));
    case 6:
      return chance.oneIn(20) ? nested(chance.below(200)) : {};
    default:
      return anyObject(chance, depth + 1);
  }
}

function anyObject(chance, depth = 0) {
  const members = Array.from({ length: chance.below(6) }, () => [
    chance.pick(ALL_NAMES),
    anyValue(chance, depth + 1),
  ]);
  // Object.fromEntries defines `__proto__` as an ordinary member.
  return Object.fromEntries(members);
}

function nested(levels) {
  let value = {};
  for (let level = 0; level < levels; level++) value = level % 2 ? [value] : { a: value };
  return value;
}

/** A valid request in a wire format. */
export function validRequest(chance, profile) {
  const hex = (algorithm) => createHash(algorithm).update(BODY).digest('hex');
  const inline = chance.oneIn(2);
  const webhook = { event: chance.pick(['order.created', 'order.deleted', 'a.b']) };
  let typ = 'JWT';
  if (profile === 'swt-draft-02') {
    typ = 'SWT';
    webhook.hash = `sha-256:${hex('sha256')}`;
    if (chance.oneIn(3)) webhook.retry_count = chance.below(4);
  } else if (inline) {
    webhook.data = { note: CANARY, n: chance.below(10) };
    if (profile === 'swt-draft-00' && chance.oneIn(2)) {
      webhook.data = Buffer.from(JSON.stringify(webhook.data)).toString('base64');
    }
    if (chance.oneIn(20)) webhook.data = { note: 'x'.repeat(chance.below(4_000)) };
  } else if (profile === 'swt-draft-00') {
    webhook.data = { hash: hex('sha3-256'), size: BODY.length };
  } else {
    webhook.hash = `sha256:${hex('sha256')}`;
  }
  return {
    header: { alg: 'HS256', typ, ...(chance.oneIn(4) && { kid: 'k1' }) },
    claims: {
      iss: ISSUER,
      iat: NOW,
      nbf: NOW,
      exp: NOW + 300,
      jti: `${CANARY}-${chance.below(1e9)}`,
      ...(chance.oneIn(4) && { txn: 'event-1' }),
      webhook,
    },
    method: inline && profile !== 'swt-draft-02' ? 'HEAD' : 'POST',
    body: inline && profile !== 'swt-draft-02' ? undefined : BODY,
  };
}

/** A token, valid or not; `holds` is whether its signature is valid, without which it must be rejected. */
export function anyToken(chance, profile) {
  const good = validRequest(chance, profile);
  const request = { method: good.method, body: good.body };
  switch (chance.below(10)) {
    case 0:
      return { kind: 'valid', ...request, ...signed(good.header, good.claims) };
    case 1:
    case 2:
    case 3:
      return {
        kind: 'changed claims',
        ...request,
        ...signed(good.header, changed(chance, good.claims)),
      };
    case 4:
      return {
        kind: 'changed header',
        ...request,
        ...signed(changed(chance, good.header), good.claims),
      };
    case 5: {
      const text = noisyJson(chance, JSON.stringify(good.claims));
      return { kind: 'noisy JSON', ...request, ...signed(good.header, text) };
    }
    case 6: {
      const header = chance.oneIn(2) ? good.header : anyObject(chance);
      return { kind: 'random structure', ...request, ...signed(header, anyValue(chance)) };
    }
    case 7: {
      const claims = chance.oneIn(2) ? chance.bytes(chance.below(80)) : grammar(chance);
      const header = chance.oneIn(3) ? grammar(chance) : good.header;
      return { kind: 'grammar and bytes', ...request, ...signed(header, claims) };
    }
    case 8: {
      const { token } = signed(good.header, good.claims);
      const corrupted = corrupt(chance, token);
      return { kind: 'changed token', ...request, token: corrupted, holds: corrupted === token };
    }
    default: {
      const noise = chance.oneIn(2)
        ? chance.bytes(chance.below(200)).toString('latin1')
        : Array.from({ length: chance.below(60) }, () => chance.pick(TOKEN_NOISE)).join('');
      return { kind: 'noise', ...request, token: noise, holds: false };
    }
  }
}

const HASHES = new Map([
  ['HS384', 'sha384'],
  ['HS512', 'sha512'],
]);

/** One key for each algorithm. */
export function secretOf(alg) {
  return alg === 'HS256' ? SECRET : `${SECRET}-${alg}`;
}

/** Signs with the HMAC algorithm of the header; by default, with HS256. */
function signed(header, claims) {
  const input = `${encode(header)}.${encode(claims)}`;
  const hash = HASHES.get(header?.alg) ?? 'sha256';
  const secret = secretOf(HASHES.has(header?.alg) ? header.alg : 'HS256');
  const mac = createHmac(hash, secret).update(input).digest('base64url');
  return { token: `${input}.${mac}`, holds: true };
}

function encode(part) {
  const bytes =
    Buffer.isBuffer(part) || typeof part === 'string'
      ? Buffer.from(part)
      : Buffer.from(JSON.stringify(part) ?? '');
  return bytes.toString('base64url');
}

/** Replaces or removes one to three members at any depth. */
function changed(chance, members) {
  const copy = structuredClone(members);
  for (let times = 1 + chance.below(3); times > 0; times--) {
    let at = copy;
    while (chance.oneIn(2) && isObject(at.webhook ?? at.data)) at = at.webhook ?? at.data;
    const known = Object.keys(at);
    const name =
      chance.oneIn(3) || known.length === 0 ? chance.pick(ALL_NAMES) : chance.pick(known);
    if (chance.oneIn(5)) delete at[name];
    else Object.defineProperty(at, name, { ...PLAIN, value: near(chance, at[name]) });
  }
  return copy;
}

const PLAIN = { enumerable: true, configurable: true, writable: true };

function near(chance, value) {
  if (typeof value === 'number' && chance.oneIn(2))
    return value + chance.pick([-3_700, -61, -1, 1, 61, 3_700]);
  if (typeof value === 'string' && chance.oneIn(2)) return corrupt(chance, value);
  return anyValue(chance);
}

function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function noisyJson(chance, json) {
  const bytes = Buffer.from(json);
  switch (chance.below(4)) {
    case 0:
      bytes[chance.below(bytes.length)] ^= 1 << chance.below(8);
      return bytes;
    case 1: {
      const at = chance.below(json.length);
      return json.slice(0, at) + chance.pick(ALL_GRAMMAR) + json.slice(at);
    }
    case 2:
      return json.slice(0, chance.below(json.length));
    default:
      return `{"${chance.pick(ALL_NAMES)}":${JSON.stringify(anyValue(chance))},${json.slice(1)}`;
  }
}

function grammar(chance) {
  const opening = chance.oneIn(50) ? '['.repeat(chance.below(5_000)) : '';
  return (
    opening + Array.from({ length: chance.below(30) }, () => chance.pick(ALL_GRAMMAR)).join('')
  );
}

function corrupt(chance, text) {
  const at = chance.below(text.length + 1);
  const noise = chance.pick(TOKEN_NOISE);
  switch (chance.below(4)) {
    case 0:
      return text.slice(0, at) + noise + text.slice(at);
    case 1:
      return text.slice(0, at) + noise + text.slice(at + 1);
    case 2:
      return text.slice(0, at) + text.slice(at + 1);
    default:
      return text.slice(0, at);
  }
}

/** Key material of every kind, mostly invalid. */
export function anyKey(chance, samples) {
  const alg = chance.pick([
    'HS256',
    'HS384',
    'HS512',
    'RS256',
    'PS256',
    'ES256',
    'ES384',
    'EdDSA',
    'none',
    7,
    undefined,
  ]);
  const kid = chance.oneIn(4) ? anyValue(chance) : undefined;
  return chance.oneIn(6)
    ? anyMaterial(chance, samples)
    : { alg, kid, key: anyMaterial(chance, samples) };
}

function anyMaterial(chance, { jwks, pems }) {
  switch (chance.below(7)) {
    case 0:
      return anyValue(chance);
    case 1:
      return chance.bytes(chance.below(100));
    case 2:
      return corrupt(chance, chance.pick(pems));
    case 3:
      return Buffer.from(corrupt(chance, chance.pick(pems)));
    case 4:
      return changed(chance, chance.pick(jwks));
    case 5:
      return `whsec_${corrupt(chance, chance.bytes(40).toString('base64'))}`;
    default:
      return chance.pick([...pems, ...jwks, SECRET, ` ${SECRET}`, `${SECRET}\n`, undefined]);
  }
}
