import { createHash } from 'node:crypto';
import { token, withWebhook } from '../forge.mjs';
import { accepted, BY_DEFAULT, refused } from '../vector.mjs';

const BODY = '{"id":"o-1","total":42}';
const ALGORITHMS = ['sha256', 'sha384', 'sha512', 'sha3-256', 'sha3-384', 'sha3-512'];
const LENIENT = { ...BY_DEFAULT, requireHash: false };

export function payloads() {
  const carrying = (hash, data) => token(withWebhook({ hash, data }));
  const post = (body, verifier) => ({ method: 'POST', body, ...(verifier && { verifier }) });
  const asBody = (body, verifier) => ({ ...post(body, verifier), payload: 'body' });
  const sha256 = hashOf('sha256', BODY);
  const hex = sha256.slice('sha256:'.length);
  const grammar =
    'hash is one of the six names in lower case, a colon, and hex digits of the exact length.';
  const exact = 'The digest is over the exact bytes of the body.';
  const unauthenticated = 'Nothing authenticates that body.';
  const mistaken = [
    ['upper-case name', `SHA256:${hex}`],
    ['mixed-case name', `Sha256:${hex}`],
    ['name with a hyphen', `sha-256:${hex}`],
    ['md5', `md5:${createHash('md5').update(BODY).digest('hex')}`],
    ['sha1', `sha1:${createHash('sha1').update(BODY).digest('hex')}`],
    ['sha224', `sha224:${createHash('sha224').update(BODY).digest('hex')}`],
    ['sha512-256', `sha512-256:${hex}`],
    ['sha3_256', `sha3_256:${hex}`],
    ['no colon', `sha256${hex}`],
    ['equals sign', `sha256=${hex}`],
    ['no name', `:${hex}`],
    ['hex alone', hex],
    ['no digits', 'sha256:'],
    ['one digit short', sha256.slice(0, -1)],
    ['one digit more', `${sha256}0`],
    ['length of another algorithm', `sha512:${hex}`],
    ['a digit that is not hex', `${sha256.slice(0, -1)}g`],
    ['base64', `sha256:${createHash('sha256').update(BODY).digest('base64')}`],
    ['0x in front', `sha256:0x${hex.slice(2)}`],
    ['white space in front', ` ${sha256}`],
    ['white space behind', `${sha256} `],
    ['newline behind', `${sha256}\n`],
    ['a space after the colon', `sha256: ${hex}`],
    ['two of them', `${sha256},${sha256}`],
    ['a prototype name', `__proto__:${hex}`],
    ['empty', ''],
  ];
  return [
    accepted(
      'HEAD with data',
      'The payload is the data in the token.',
      carrying(undefined, { id: 1 }),
    ),
    accepted('HEAD without data', 'An event may have no data.', carrying(undefined, undefined), {
      payload: 'none',
    }),
    refused(
      'HEAD with hash',
      'hash_unsupported',
      'HEAD has no body that a hash could be checked on.',
      carrying(sha256),
    ),
    refused(
      'HEAD with the digest of nothing',
      'hash_unsupported',
      'HEAD has no body that a hash could be checked on.',
      carrying(hashOf('sha256', '')),
    ),
    refused(
      'HEAD with data and hash',
      'hash_unsupported',
      'HEAD has no body that a hash could be checked on.',
      carrying(sha256, { id: 1 }),
    ),
    ...ALGORITHMS.flatMap((name) => [
      accepted(
        `POST with ${name}`,
        'The payload is the body.',
        carrying(hashOf(name, BODY)),
        asBody(BODY),
      ),
      refused(
        `POST with ${name}, body changed`,
        'hash_mismatch',
        exact,
        carrying(hashOf(name, BODY)),
        post(`${BODY} `),
      ),
    ]),
    ...ALGORITHMS.map((name) =>
      accepted(
        `POST with ${name} in upper-case hex`,
        'Hex digits are taken in either case.',
        carrying(upperHex(hashOf(name, BODY))),
        asBody(BODY),
      ),
    ),
    ...mistaken.map(([name, hash]) =>
      refused(`hash: ${name}`, 'hash_unsupported', grammar, carrying(hash), post(BODY)),
    ),
    ...Object.entries({
      null: null,
      'a number': 1,
      'a list': [sha256],
      'an object': { sha256: hex },
    }).map(([kind, value]) =>
      refused(`hash ${kind}`, 'invalid_claim', 'hash is a string.', carrying(value), post(BODY)),
    ),
    accepted(
      'POST of bytes that are not text',
      exact,
      carrying(hashOf('sha256', Buffer.from([0, 255, 13, 10, 0]))),
      asBody(Buffer.from([0, 255, 13, 10, 0])),
    ),
    refused(
      'POST of the same JSON, written in another way',
      'hash_mismatch',
      exact,
      carrying(sha256),
      post('{"total":42,"id":"o-1"}'),
    ),
    refused(
      'POST with a byte order mark that was not digested',
      'hash_mismatch',
      exact,
      carrying(sha256),
      post(`\ufeff${BODY}`),
    ),
    refused(
      'POST with the body cut off',
      'hash_mismatch',
      exact,
      carrying(sha256),
      post(BODY.slice(0, -1)),
    ),
    refused('POST, nothing arrived of a digested body', 'hash_mismatch', exact, carrying(sha256), {
      method: 'POST',
    }),
    refused(
      'POST with the digest of nothing and a body',
      'hash_mismatch',
      exact,
      carrying(hashOf('sha256', '')),
      post(BODY),
    ),
    refused(
      'POST with the digest under another algorithm of the same length',
      'hash_mismatch',
      'The algorithm is part of the digest.',
      carrying(`sha3-256:${hex}`),
      post(BODY),
    ),
    refused(
      'POST with a body and no hash',
      'hash_required',
      unauthenticated,
      carrying(),
      post(BODY),
    ),
    refused(
      'POST with a body, data and no hash',
      'hash_required',
      unauthenticated,
      carrying(undefined, { id: 1 }),
      post(BODY),
    ),
    refused(
      'POST with one byte and no hash',
      'hash_required',
      unauthenticated,
      carrying(),
      post(' '),
    ),
    accepted(
      'POST without a body, with data',
      'Without a body the payload is the data in the token.',
      carrying(undefined, { id: 1 }),
      { method: 'POST' },
    ),
    accepted('POST without a body or data', 'An event may have no data.', carrying(), {
      method: 'POST',
      payload: 'none',
    }),
    accepted(
      'POST with an empty body, with data',
      'An empty body counts as no body.',
      carrying(undefined, { id: 1 }),
      post(''),
    ),
    accepted(
      'POST without a body, with the digest of nothing',
      'The digest of zero bytes holds where there are none.',
      carrying(hashOf('sha3-512', '')),
      { method: 'POST', payload: 'none' },
    ),
    accepted(
      'POST without a body, with data and the digest of nothing',
      'Without a body the payload is the data in the token.',
      carrying(hashOf('sha256', ''), { id: 1 }),
      { method: 'POST' },
    ),
    accepted(
      'POST with body, data and hash',
      'The hash holds, and the payload is the body.',
      carrying(sha256, { id: 1 }),
      asBody(BODY),
    ),
    refused(
      'POST with body, data and a wrong hash',
      'hash_mismatch',
      'data does not replace a body with a wrong digest.',
      carrying(hashOf('sha256', 'x'), { id: 1 }),
      post(BODY),
    ),
    accepted(
      'hash not required: a body without',
      'The option takes the body, and says that it is not verified.',
      carrying(),
      { ...asBody(BODY, LENIENT), bodyVerified: false },
    ),
    accepted(
      'hash not required: a body with data and without hash',
      'The option takes the body, and says that it is not verified.',
      carrying(undefined, { id: 1 }),
      { ...asBody(BODY, LENIENT), bodyVerified: false },
    ),
    accepted(
      'hash not required: a body with its hash',
      'A hash that is there is checked.',
      carrying(sha256),
      asBody(BODY, LENIENT),
    ),
    refused(
      'hash not required: a body with a wrong hash',
      'hash_mismatch',
      'A hash that is there is checked.',
      carrying(hashOf('sha256', 'x')),
      post(BODY, LENIENT),
    ),
    refused(
      'hash not required: an unknown algorithm',
      'hash_unsupported',
      'A hash that is there is checked.',
      carrying(`md5:${hex}`),
      post(BODY, LENIENT),
    ),
    refused(
      'hash not required: HEAD with hash',
      'hash_unsupported',
      'HEAD has no body that a hash could be checked on.',
      carrying(sha256),
      { verifier: LENIENT },
    ),
    accepted(
      'hash not required: no body',
      'Without a body, nothing is unverified.',
      carrying(undefined, { id: 1 }),
      { method: 'POST', verifier: LENIENT },
    ),
  ];
}

function hashOf(algorithm, body) {
  return `${algorithm}:${createHash(algorithm).update(body).digest('hex')}`;
}

function upperHex(hash) {
  const [name, hex] = hash.split(':');
  return `${name}:${hex.toUpperCase()}`;
}
