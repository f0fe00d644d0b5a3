import { createHash } from 'node:crypto';
import { AUDIENCE, ISSUER, keys, NOW, SECRET } from '../forge.mjs';

const ID = 'evt_2025-10-09_0001';
const JTI = '6f1c2a9e-0001';
const ORDER = { id: 'o-1', total: 42 };
const LARGE = { id: 'o-1', note: 'x'.repeat(7_000) };
const REFERENCE = { hash: '9f86d081', size: 3 };
const BYTES = Buffer.from([0, 255, 10, 13, 128]);

const DRAFT_00_NAMES = {
  sha256: 'SHA-256',
  sha384: 'SHA-384',
  sha512: 'SHA-512',
  'sha3-256': 'SHA3-256',
  'sha3-384': 'SHA3-384',
  'sha3-512': 'SHA3-512',
};
const DRAFT_02_NAMES = {
  sha256: 'sha-256',
  sha384: 'sha-384',
  sha512: 'sha-512',
  'sha3-256': 'sha3-256',
  'sha3-384': 'sha3-384',
  'sha3-512': 'sha3-512',
};
const HASHES = Object.keys(DRAFT_02_NAMES);

const KEY_PAIRS = { RS256: keys.rsa.jwk, ES256: keys.ec.jwk, EdDSA: keys.ed.jwk };

/** Events inline by HEAD where they are small objects, else by POST with a digest. */
export function sendWebhookToken() {
  const make = maker('webhook-token', {
    typ: 'JWT',
    stamp: (body, hash) => ({ hash: `${hash}:${hex(hash, body)}` }),
    heads: true,
  });
  return [
    make('an object', 'A small object travels in the token, by HEAD.', { data: ORDER }),
    make('no data', 'An event may have no data.', {}),
    make('an empty object', 'It is an object.', { data: {} }),
    make('other scripts', 'JSON is UTF-8.', { data: { name: 'Łódź 日本 😀', quote: '"\\\n' } }),
    make('numbers', 'A number stays what it is.', { data: { a: 0.1, b: -7, c: 1e21, d: null } }),
    make('4 kB', 'Up to 6000 bytes are inline, as long as the whole head stays small.', {
      data: { id: 'o-1', note: 'x'.repeat(4_000) },
    }),
    make('more than 6000 bytes', 'Larger data travels in the body.', { data: LARGE }),
    make('data like a body reference', 'Receivers of swt-draft-00 would look for its body.', {
      data: REFERENCE,
    }),
    make('data like a body reference with a member of its own', 'It cannot be misread.', {
      data: { ...REFERENCE, name: 'a.txt' },
    }),
    make('a list', 'Only an object is inline data.', { data: [1, 2] }),
    make('a string', 'Only an object is inline data.', { data: 'hello' }),
    make('null', 'Only an object is inline data.', { data: null }),
    make('bytes', 'Anything but JSON is sent in the body.', {
      bytes: BYTES,
      contentType: 'application/octet-stream',
    }),
    make('text of another type', 'Anything but JSON is sent in the body.', {
      bytes: Buffer.from('id;total\no-1;42\n'),
      contentType: 'text/csv; charset=utf-8',
    }),
    make('POST on demand', 'The sender can be configured to use POST.', {
      data: ORDER,
      method: 'POST',
    }),
    make('POST on demand, no data', 'Without a body there is no digest.', { method: 'POST' }),
    ...HASHES.map((hash) =>
      make(`POST with ${hash}`, 'The digest is one of six.', { data: ORDER, method: 'POST', hash }),
    ),
    make('an audience', 'The token names whom it is for.', { data: ORDER, audience: AUDIENCE }),
    make('two audiences', 'The token names whom it is for.', {
      data: ORDER,
      audience: [AUDIENCE, 'https://b.example'],
    }),
    make('a subject', 'sub is what the event is about.', { data: ORDER, subject: 'customer-7' }),
    make('a short lifetime', 'exp is iat and the lifetime.', { data: ORDER, tokenLifetime: 60 }),
    make('a longer name', 'A name has two segments or more.', {
      name: 'shop.order_line-item.created',
      data: ORDER,
    }),
    make('within a second', 'Times are whole seconds, rounded down.', {
      data: ORDER,
      now: NOW + 0.999,
    }),
    make('a named key', 'kid names the key.', { data: ORDER, kid: '2025-10' }),
    ...['HS384', 'HS512'].map((alg) =>
      make(alg, 'The key decides the algorithm.', { data: ORDER, alg }),
    ),
    ...['RS256', 'ES256', 'EdDSA'].map((alg) =>
      make(alg, 'The key decides the algorithm.', { data: ORDER, alg, kid: `${alg}-1` }),
    ),
  ];
}

/** By HEAD as above; by POST with the digests of both formats, so that receivers of either take it. */
export function sendDraft00() {
  const make = maker('swt-draft-00', {
    typ: 'JWT',
    hash: 'sha3-256',
    stamp: (body, hash) => ({
      data: { hash: hex(hash, body), hashAlg: DRAFT_00_NAMES[hash], size: body.length },
      hash: `${hash}:${hex(hash, body)}`,
    }),
    heads: true,
    hashesNothing: true,
  });
  return [
    make('an object', 'A small object travels in the token, by HEAD.', { data: ORDER }),
    make('no data', 'An event may have no data.', {}),
    make('data like a body reference', 'Receivers would look for its body.', {
      data: { ...REFERENCE, hashAlg: 'SHA-256' },
    }),
    make('more than 6144 bytes', 'Larger data travels in the body.', { data: LARGE }),
    make('a list', 'Only an object is inline data.', { data: [1, 2] }),
    make('bytes', 'Anything but JSON is sent in the body.', {
      bytes: BYTES,
      contentType: 'application/octet-stream',
    }),
    make('POST on demand', 'The sender can be configured to use POST.', {
      data: ORDER,
      method: 'POST',
    }),
    make('POST on demand, no data', 'An empty body has the digest of zero bytes and size 0.', {
      method: 'POST',
    }),
    ...HASHES.map((hash) =>
      make(`POST with ${hash}`, 'hashAlg names the digest.', { data: ORDER, method: 'POST', hash }),
    ),
    make('HS512', 'The key decides the algorithm.', { data: ORDER, alg: 'HS512' }),
  ];
}

/** By POST alone, with the digest of a body that is not empty. */
export function sendDraft02() {
  const make = maker('swt-draft-02', {
    typ: 'SWT',
    stamp: (body, hash) => ({ hash: `${DRAFT_02_NAMES[hash]}:${hex(hash, body)}` }),
    more: { retry_count: 0 },
    heads: false,
  });
  return [
    make('an object', 'Data travels in the body.', { data: ORDER }),
    make('no data', 'An empty body has no hash.', {}),
    make('large data', 'Data travels in the body.', { data: LARGE }),
    make('bytes', 'Data travels in the body.', {
      bytes: BYTES,
      contentType: 'application/octet-stream',
    }),
    make('an audience', 'The token names whom it is for.', { data: ORDER, audience: AUDIENCE }),
    ...HASHES.map((hash) =>
      make(`with ${hash}`, 'Names are those of RFC 6920.', { data: ORDER, hash }),
    ),
    make('HS384', 'The key decides the algorithm.', { data: ORDER, alg: 'HS384' }),
    ...['RS256', 'ES256'].map((alg) =>
      make(alg, 'The key decides the algorithm.', { data: ORDER, alg, kid: `${alg}-1` }),
    ),
  ];
}

/** Makes cases of one format, with what a right sender does. */
function maker(profile, format) {
  return (name, reason, event) => {
    const {
      name: eventName = 'order.created',
      data,
      bytes,
      contentType = 'application/json',
      audience,
      subject,
      method,
      kid,
      alg = 'HS256',
      hash,
      tokenLifetime = 300,
      now = NOW,
    } = event;
    const octets = bytes ?? (data === undefined ? undefined : Buffer.from(JSON.stringify(data)));
    const inline = data === undefined ? bytes === undefined : isInline(data, octets);
    const head = format.heads && method !== 'POST' && inline;
    const digested = octets ?? (format.hashesNothing ? Buffer.alloc(0) : undefined);
    const iat = Math.floor(now);
    const carried = head
      ? { ...(data !== undefined && { data }) }
      : digested === undefined
        ? {}
        : format.stamp(digested, hash ?? format.hash ?? 'sha256');
    return {
      name,
      profile,
      reason,
      now,
      sender: {
        issuer: ISSUER,
        key: { ...(kid && { kid }), alg, ...keyMaterial(alg) },
        tokenLifetime,
        ...(hash && { hash }),
        method: method ?? 'auto',
      },
      event: {
        name: eventName,
        id: ID,
        jti: JTI,
        ...(audience && { audience }),
        ...(subject && { subject }),
        ...(data !== undefined && { data }),
        ...(bytes && { bytes: bytes.toString('base64') }),
        ...(bytes && { contentType }),
      },
      expect: {
        method: head ? 'HEAD' : 'POST',
        headers: {
          'content-type': contentType,
          'content-length': head ? '0' : String(octets?.length ?? 0),
        },
        ...(!head && octets && { body: octets.toString('base64') }),
        header: { alg, typ: format.typ, ...(kid && { kid }) },
        claims: {
          iss: ISSUER,
          ...(subject && { sub: subject }),
          ...(audience && { aud: audience }),
          iat,
          nbf: iat,
          exp: iat + tokenLifetime,
          jti: JTI,
          txn: ID,
          webhook: { event: eventName, ...carried, ...format.more },
        },
      },
    };
  };
}

function isInline(data, octets) {
  return (
    typeof data === 'object' &&
    data !== null &&
    !Array.isArray(data) &&
    !readsAsReference(data) &&
    octets.length <= 6_000
  );
}

function readsAsReference(data) {
  const isReference = typeof data.hash === 'string' && typeof data.size === 'number';
  return (
    isReference && Object.keys(data).every((name) => ['hash', 'size', 'hashAlg'].includes(name))
  );
}

function keyMaterial(alg) {
  return alg.startsWith('HS') ? { secret: SECRET } : { privateJwk: KEY_PAIRS[alg] };
}

function hex(algorithm, bytes) {
  return createHash(algorithm).update(bytes).digest('hex');
}
