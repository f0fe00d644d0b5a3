import { createHash } from 'node:crypto';
import {
  AUDIENCE,
  claims,
  encode,
  header,
  keys,
  NOW,
  OTHER_ISSUER,
  SECRET,
  signature,
  token,
  withWebhook,
} from '../forge.mjs';
import { casesOf, BY_DEFAULT, trusting } from '../vector.mjs';

const { accepted, refused } = casesOf('swt-draft-00');

const BODY = '{"id":"o-1","total":42}';
const EXP = NOW + 300;
const DATA = { id: 'o-1', total: 42 };

/** The names of this format, with those node:crypto knows them by. */
const ALGORITHMS = {
  'SHA-256': 'sha256',
  'SHA-384': 'sha384',
  'SHA-512': 'sha512',
  'SHA3-256': 'sha3-256',
  'SHA3-384': 'sha3-384',
  'SHA3-512': 'sha3-512',
};

export function draft00() {
  return [...headers(), ...claimSets(), ...times(), ...inline(), ...bodies(), ...mixtures()];
}

function headers() {
  const typ = 'typ is not checked in this format.';
  const alg = 'This format has HMAC alone.';
  const secret = (name) => trusting({ alg: name, secret: SECRET });
  const unsigned = `${encode(header({ alg: 'none' }))}.${encode(claims())}`;
  const [head, payload, mac] = token().split('.');
  return [
    accepted('typ JWT', 'The reference implementation emits it.', token()),
    accepted('no typ', typ, token(claims(), header({ typ: undefined }))),
    accepted('another typ', typ, token(claims(), header({ typ: 'webhook' }))),
    accepted('HS384', alg, token(claims(), header({ alg: 'HS384' })), {
      verifier: secret('HS384'),
    }),
    accepted('HS512', alg, token(claims(), header({ alg: 'HS512' })), {
      verifier: secret('HS512'),
    }),
    refused(
      'RS256, where a secret is trusted',
      'invalid_token',
      alg,
      token(claims(), header({ alg: 'RS256' }), { key: keys.rsa }),
    ),
    refused('alg none, no signature', 'invalid_token', 'A token is signed.', `${unsigned}.`),
    refused(
      'alg none, with a signature',
      'invalid_token',
      'The algorithm is that of the key, never that of the token.',
      `${unsigned}.${signature(unsigned)}`,
    ),
    refused(
      'HS512 under a key of HS256',
      'invalid_token',
      'The algorithm is that of the key, never that of the token.',
      token(claims(), header({ alg: 'HS512' })),
    ),
    refused(
      'another secret',
      'bad_signature',
      'The signature holds under a key of the issuer.',
      token(claims(), header(), { key: keys.otherSecret }),
    ),
    refused(
      'changed claims',
      'bad_signature',
      'The signature covers the claims.',
      `${head}.${encode(claims({ jti: 'another' }))}.${mac}`,
    ),
    refused(
      'crit',
      'invalid_token',
      'Extensions that are not implemented are not skipped.',
      token(claims(), header({ crit: ['exp'] })),
    ),
    refused('padding', 'invalid_token', 'A part has no padding.', `${head}=.${payload}.${mac}`),
    refused('two parts', 'invalid_token', 'A token has three parts.', `${head}.${payload}`),
    refused(
      'alg twice',
      'invalid_token',
      'There are no duplicate members.',
      token(claims(), '{"alg":"HS256","alg":"HS256","typ":"JWT"}', { alg: 'HS256' }),
    ),
  ];
}

function claimSets() {
  const required = 'The claim is required, nbf too in this format.';
  return [
    ...['webhook', 'iss', 'exp', 'nbf', 'iat', 'jti'].map((name) =>
      refused(`no ${name}`, 'missing_claim', required, token(claims({ [name]: undefined }))),
    ),
    refused(
      'no event',
      'missing_claim',
      'An event has a name.',
      token(withWebhook({ event: undefined })),
    ),
    refused(
      'an empty event',
      'invalid_claim',
      'An event has a name.',
      token(withWebhook({ event: '' })),
    ),
    accepted(
      'an event of one word',
      'The reference implementation takes any name that is not empty.',
      token(withWebhook({ event: 'ping' })),
      { payload: 'none' },
    ),
    refused('an empty jti', 'invalid_claim', 'jti is not empty.', token(claims({ jti: '' }))),
    refused('jti a number', 'invalid_claim', 'jti is a string.', token(claims({ jti: 7 }))),
    refused(
      'another issuer',
      'wrong_issuer',
      'Only configured issuers are trusted.',
      token(claims({ iss: OTHER_ISSUER })),
    ),
    refused(
      'webhook a string',
      'invalid_claim',
      'webhook is an object.',
      token(claims({ webhook: 'a.b' })),
    ),
    refused(
      'event twice',
      'invalid_claim',
      'There are no duplicate members.',
      token(JSON.stringify(claims()).replace('"webhook":{', '"webhook":{"event":"order.deleted",')),
    ),
    accepted(
      'aud that is configured',
      'aud names this receiver.',
      token(claims({ aud: [AUDIENCE] })),
      {
        verifier: { ...BY_DEFAULT, audience: AUDIENCE },
      },
    ),
    refused(
      'aud of another receiver',
      'wrong_audience',
      'aud names this receiver.',
      token(claims({ aud: ['https://other.example'] })),
      { verifier: { ...BY_DEFAULT, audience: AUDIENCE } },
    ),
    accepted('an unknown member', 'Unknown members are ignored.', token(claims({ color: 'red' }))),
  ];
}

function times() {
  const none = 'This format has no tolerance.';
  const at = (now) => ({ now });
  return [
    accepted('one second before exp', none, token(), at(EXP - 1)),
    refused('at exp', 'token_expired', none, token(), at(EXP)),
    refused('one second after exp', 'token_expired', none, token(), at(EXP + 1)),
    accepted('at nbf', none, token(claims({ nbf: NOW + 10 })), at(NOW + 10)),
    refused(
      'one second before nbf',
      'token_not_yet_valid',
      none,
      token(claims({ nbf: NOW + 10 })),
      at(NOW + 9),
    ),
    refused('one second before iat', 'token_not_yet_valid', none, token(), at(NOW - 1)),
    accepted(
      'a fraction of a second before exp',
      'Times may have a fraction (RFC 7519, section 2).',
      token(claims({ exp: EXP + 0.5 })),
      at(EXP + 0.25),
    ),
    refused(
      'exp in milliseconds',
      'invalid_claim',
      'Times are seconds.',
      token(claims({ exp: EXP * 1000 })),
    ),
    refused(
      'exp a string',
      'invalid_claim',
      'Times are numbers.',
      token(claims({ exp: String(EXP) })),
    ),
    refused('nbf null', 'invalid_claim', 'Times are numbers.', token(claims({ nbf: null }))),
  ];
}

function inline() {
  const text = 'data may be the base64 of the JSON, as the reference implementation sends it.';
  const any = 'The reference implementation takes the base64 of any JSON.';
  const strict = 'The base64 is that of RFC 4648 section 4, with its padding.';
  const sent = (data) => token(withWebhook({ data }));
  const base64 = (value) =>
    Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64');
  const nested = (levels) => (levels === 0 ? {} : { a: nested(levels - 1) });
  return [
    accepted('HEAD with an object', 'The payload is the data in the token.', sent(DATA)),
    accepted('HEAD with base64', text, sent(base64(DATA))),
    accepted('HEAD with base64 of an empty object', text, sent(base64('{}'))),
    accepted('HEAD with base64 of JSON with white space', text, sent(base64('{ "id": 1 }\n'))),
    accepted('HEAD with base64 that ends with ==', text, sent(base64('{"a":12}  '))),
    accepted('HEAD with base64 of other scripts', text, sent(base64({ name: 'Łódź 日本' }))),
    accepted('HEAD without data', 'An event may have no data.', sent(undefined), {
      payload: 'none',
    }),
    accepted(
      'HEAD with data null',
      'The reference implementation writes null if there is no data.',
      sent(null),
      { payload: 'none' },
    ),
    refused(
      'HEAD with a reference to a body',
      'hash_unsupported',
      'A HEAD has no body. Read as data, the reference would use up the token of its POST.',
      sent(stamp(BODY)),
    ),
    refused('HEAD with base64url', 'invalid_claim', strict, sent('eyJhIjoiPz8_In0_')),
    refused(
      'HEAD with base64 without padding',
      'invalid_claim',
      strict,
      sent(base64('{"a":1}').replace(/=+$/, '')),
    ),
    refused(
      'HEAD with a newline in the base64',
      'invalid_claim',
      strict,
      sent(`${base64(DATA)}\n`),
    ),
    refused('HEAD with a string that is not base64', 'invalid_claim', strict, sent('{"id":1}')),
    refused('HEAD with an empty string', 'invalid_claim', 'An empty string is not JSON.', sent('')),
    accepted('HEAD with base64 of a list', any, sent(base64([1]))),
    accepted('HEAD with base64 of a string', any, sent(base64('"x"'))),
    accepted('HEAD with base64 of a number', any, sent(base64('7'))),
    accepted('HEAD with base64 of null', any, sent(base64('null'))),
    accepted(
      'HEAD with base64 of what looks like a reference to a body',
      'A reference is never base64, so this is data.',
      sent(base64(stamp(BODY))),
    ),
    refused(
      'HEAD with base64 of no JSON',
      'invalid_claim',
      'It is base64 of JSON.',
      sent(base64('order')),
    ),
    refused(
      'HEAD with base64 of no UTF-8',
      'invalid_claim',
      'The JSON is UTF-8.',
      sent(Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]).toString('base64')),
    ),
    refused(
      'HEAD with base64 that replaces a prototype',
      'invalid_claim',
      'The rules of data also hold for base64.',
      sent(base64('{"__proto__":{"admin":true}}')),
    ),
    refused(
      'HEAD with base64 that nests too deep',
      'invalid_claim',
      'The rules of data also hold for base64.',
      sent(base64(nested(70))),
    ),
    refused('HEAD with a list', 'invalid_claim', 'data is an object.', sent([1])),
    refused('HEAD with a number', 'invalid_claim', 'data is an object.', sent(7)),
  ];
}

function bodies() {
  const exact = 'The digest is over the exact bytes of the body.';
  const size = 'size is the length of the body in bytes.';
  const names = 'hashAlg is one of the six names; without it, it is SHA3-256.';
  const grammar = 'hash is hex of the exact length.';
  const sent = (data) => token(withWebhook({ data }));
  const post = (body) => ({ method: 'POST', body });
  const asBody = (body) => ({ ...post(body), payload: 'body' });
  const right = stamp(BODY);
  const bytes = Buffer.from([0, 255, 10, 13, 128]);
  return [
    accepted('POST without hashAlg', names, sent(right), asBody(BODY)),
    ...Object.keys(ALGORITHMS).map((name) =>
      accepted(`POST with ${name}`, names, sent(stamp(BODY, name)), asBody(BODY)),
    ),
    ...Object.keys(ALGORITHMS).map((name) =>
      refused(
        `POST with ${name} and another body of the length`,
        'hash_mismatch',
        exact,
        sent(stamp(BODY, name)),
        post(BODY.replace('42', '43')),
      ),
    ),
    accepted(
      'POST with hashAlg in lower case',
      'The reference implementation sends the name as its caller wrote it, and ignores its case.',
      sent({ ...stamp(BODY, 'SHA-256'), hashAlg: 'sha-256' }),
      asBody(BODY),
    ),
    accepted('POST of bytes', exact, sent(stamp(bytes)), asBody(bytes)),
    accepted(
      'POST of nothing',
      'An empty body has the digest of zero bytes and size 0.',
      sent(stamp('')),
      { method: 'POST', payload: 'none' },
    ),
    refused('POST cut off', 'hash_mismatch', exact, sent(right), post(BODY.slice(0, -1))),
    refused('POST with a byte more', 'hash_mismatch', exact, sent(right), post(`${BODY}\n`)),
    refused(
      'POST of the same JSON, serialised again',
      'hash_mismatch',
      exact,
      sent(right),
      post('{"total":42,"id":"o-1"}'),
    ),
    refused(
      'POST, size too small',
      'hash_mismatch',
      size,
      sent({ ...right, size: 22 }),
      post(BODY),
    ),
    refused(
      'POST, size too large',
      'hash_mismatch',
      size,
      sent({ ...right, size: 24 }),
      post(BODY),
    ),
    refused('POST, size 0', 'hash_mismatch', size, sent({ ...right, size: 0 }), post(BODY)),
    refused(
      'POST, digest of nothing and a body',
      'hash_mismatch',
      exact,
      sent(stamp('')),
      post(BODY),
    ),
    refused('POST, nothing arrived', 'hash_mismatch', exact, sent(right), { method: 'POST' }),
    refused(
      'POST, hashAlg MD5',
      'hash_unsupported',
      names,
      sent({ ...right, hashAlg: 'MD5' }),
      post(BODY),
    ),
    refused(
      'POST, hashAlg SHA-1',
      'hash_unsupported',
      names,
      sent({ ...right, hashAlg: 'SHA-1' }),
      post(BODY),
    ),
    refused(
      'POST, hashAlg a prototype name',
      'hash_unsupported',
      names,
      sent({ ...right, hashAlg: '__proto__' }),
      post(BODY),
    ),
    refused(
      'POST, hash of another length',
      'hash_unsupported',
      grammar,
      sent({ ...right, hash: right.hash.slice(1) }),
      post(BODY),
    ),
    refused(
      'POST, hash that is not hex',
      'hash_unsupported',
      grammar,
      sent({ ...right, hash: `${right.hash.slice(1)}g` }),
      post(BODY),
    ),
    refused(
      'POST with a reference in base64',
      'hash_required',
      'The reference implementation reads a reference as an object only.',
      sent(Buffer.from(JSON.stringify(right)).toString('base64')),
      post(BODY),
    ),
    refused(
      'POST with a body and no data',
      'hash_required',
      'Nothing authenticates that body.',
      sent(undefined),
      post(BODY),
    ),
    refused(
      'POST with a body and other data',
      'hash_required',
      'Nothing authenticates that body.',
      sent(DATA),
      post(BODY),
    ),
  ];
}

/** Rules of two formats in one token. */
function mixtures() {
  const both = 'Where a token carries the digests of both formats, both hold.';
  const one = 'Formats are never mixed.';
  const dual = (data, hash) => token(withWebhook({ data, hash }));
  const sha256 = (body) => `sha256:${hex('sha256', body)}`;
  const post = { method: 'POST', body: BODY };
  return [
    accepted('both digests', both, dual(stamp(BODY), sha256(BODY)), { ...post, payload: 'body' }),
    refused(
      'both digests, its own wrong',
      'hash_mismatch',
      both,
      dual(stamp('x'.repeat(23)), sha256(BODY)),
      post,
    ),
    refused(
      'both digests, the other wrong',
      'hash_mismatch',
      both,
      dual(stamp(BODY), sha256('x')),
      post,
    ),
    refused(
      'both digests, size wrong',
      'hash_mismatch',
      both,
      dual({ ...stamp(BODY), size: 1 }, sha256(BODY)),
      post,
    ),
    refused(
      "the other format's digest alone",
      'hash_required',
      one,
      dual(undefined, sha256(BODY)),
      post,
    ),
  ];
}

function stamp(body, hashAlg) {
  const hash = hex(ALGORITHMS[hashAlg ?? 'SHA3-256'], body);
  return { hash, ...(hashAlg && { hashAlg }), size: Buffer.byteLength(body) };
}

function hex(algorithm, body) {
  return createHash(algorithm).update(body).digest('hex');
}
