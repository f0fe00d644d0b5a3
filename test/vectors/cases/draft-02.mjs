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
import { BY_DEFAULT, casesOf, trusting } from '../vector.mjs';

const { accepted, refused } = casesOf('swt-draft-02', { method: 'POST', payload: 'none' });

const BODY = '{"id":"o-1","total":42}';
const EXP = NOW + 300;
const TOLERANCE = 60;

/** The names of this format (RFC 6920), with those node:crypto knows them by. */
const ALGORITHMS = {
  'sha-256': 'sha256',
  'sha-384': 'sha384',
  'sha-512': 'sha512',
  'sha3-256': 'sha3-256',
  'sha3-384': 'sha3-384',
  'sha3-512': 'sha3-512',
};

export function draft02() {
  return [...headers(), ...claimSets(), ...times(), ...methods(), ...bodies()];
}

const swt = (change) => header({ typ: 'SWT', ...change });
const bare = (change) => claims({ webhook: { event: 'order.created' }, ...change });
const signed = (payload = bare(), change = {}, how = {}) => token(payload, swt(change), how);
const carrying = (hash, more) => signed(withWebhook({ hash, ...more }));

function headers() {
  const exact = 'typ is exactly SWT.';
  const listed = 'The algorithms are HS256, HS384, HS512, RS256 and ES256.';
  const unsigned = `${encode(swt({ alg: 'none' }))}.${encode(bare())}`;
  const [head, payload, mac] = signed().split('.');
  const by = (alg, key) => [
    signed(bare(), { alg }, { key }),
    { verifier: trusting({ alg, publicJwk: key.publicJwk }) },
  ];
  return [
    accepted('typ SWT', exact, signed()),
    ...[
      ['swt', 'typ in lower case'],
      ['JWT', 'typ JWT'],
      ['application/SWT', 'typ with application/'],
      [undefined, 'no typ'],
      ['', 'empty typ'],
      [null, 'typ null'],
    ].map(([typ, name]) => refused(name, 'invalid_token', exact, signed(bare(), { typ }))),
    ...['HS384', 'HS512'].map((alg) =>
      accepted(alg, listed, signed(bare(), { alg }), {
        verifier: trusting({ alg, secret: SECRET }),
      }),
    ),
    accepted('RS256', listed, ...by('RS256', keys.rsa)),
    accepted('ES256', listed, ...by('ES256', keys.ec)),
    refused(
      'RS256 of another key',
      'bad_signature',
      'The signature holds.',
      by('RS256', keys.otherRsa)[0],
      by('RS256', keys.rsa)[1],
    ),
    refused(
      'ES256 of another key',
      'bad_signature',
      'The signature holds.',
      by('ES256', keys.otherEc)[0],
      by('ES256', keys.ec)[1],
    ),
    refused('alg none, no signature', 'invalid_token', 'A token is signed.', `${unsigned}.`),
    refused(
      'alg none, with a signature',
      'invalid_token',
      'The algorithm is that of the key.',
      `${unsigned}.${signature(unsigned)}`,
    ),
    refused(
      'HS512 under a key of HS256',
      'invalid_token',
      'The algorithm is that of the key.',
      signed(bare(), { alg: 'HS512' }),
    ),
    refused(
      'another secret',
      'bad_signature',
      'The signature holds.',
      signed(bare(), {}, { key: keys.otherSecret }),
    ),
    refused(
      'changed claims',
      'bad_signature',
      'The signature covers the claims.',
      `${head}.${encode(bare({ jti: 'another' }))}.${mac}`,
    ),
    refused(
      'crit',
      'invalid_token',
      'Extensions that are not implemented are not skipped.',
      signed(bare(), { crit: ['exp'] }),
    ),
    refused('padding', 'invalid_token', 'A part has no padding.', `${head}=.${payload}.${mac}`),
    refused(
      'four parts',
      'invalid_token',
      'A token has three parts.',
      `${head}.${payload}.${mac}.${mac}`,
    ),
  ];
}

function claimSets() {
  const required = 'The claim is required, nbf too in this format.';
  const count = 'retry_count is a whole number, 0 or more.';
  return [
    ...['webhook', 'iss', 'exp', 'nbf', 'iat', 'jti'].map((name) =>
      refused(`no ${name}`, 'missing_claim', required, signed(bare({ [name]: undefined }))),
    ),
    refused(
      'no event',
      'missing_claim',
      'An event has a name.',
      carrying(undefined, { event: undefined }),
    ),
    accepted(
      'an event of one word',
      'The draft recommends the form <entity>.<action> and does not require it.',
      carrying(undefined, { event: 'ping' }),
    ),
    refused(
      'an empty event',
      'invalid_claim',
      'An event has a name.',
      carrying(undefined, { event: '' }),
    ),
    refused('an empty jti', 'invalid_claim', 'jti is not empty.', signed(bare({ jti: '' }))),
    refused(
      'another issuer',
      'wrong_issuer',
      'Only configured issuers are trusted.',
      signed(bare({ iss: OTHER_ISSUER })),
    ),
    refused(
      'webhook a list',
      'invalid_claim',
      'webhook is an object.',
      signed(bare({ webhook: [] })),
    ),
    refused(
      'jti twice',
      'invalid_claim',
      'There are no duplicate members.',
      signed(`{"jti":"a",${JSON.stringify(bare()).slice(1)}`),
    ),
    accepted('with sub', 'sub is optional.', signed(bare({ sub: 'user-12345' }))),
    accepted(
      'aud that is configured',
      'aud names this receiver.',
      signed(bare({ aud: AUDIENCE })),
      {
        verifier: { ...BY_DEFAULT, audience: AUDIENCE },
      },
    ),
    refused(
      'aud of another receiver',
      'wrong_audience',
      'aud names this receiver.',
      signed(bare({ aud: 'https://other.example' })),
      {
        verifier: { ...BY_DEFAULT, audience: AUDIENCE },
      },
    ),
    refused(
      'with data',
      'invalid_claim',
      'The payload is the body: this format has no inline data.',
      carrying(undefined, { data: { id: 'o-1' } }),
    ),
    ...[0, 1, 9].map((value) =>
      accepted(`retry_count ${value}`, count, carrying(undefined, { retry_count: value })),
    ),
    ...[
      [-1, '-1'],
      [1.5, '1.5'],
      ['1', 'a string'],
      [null, 'null'],
      [true, 'true'],
    ].map(([value, name]) =>
      refused(
        `retry_count ${name}`,
        'invalid_claim',
        count,
        carrying(undefined, { retry_count: value }),
      ),
    ),
  ];
}

function times() {
  const expires = 'now < exp + clockTolerance.';
  const begins = 'nbf <= now + clockTolerance.';
  const issued = 'iat <= now + clockTolerance.';
  const late = signed(bare({ nbf: NOW + 100 }));
  const at = (now) => ({ now });
  return [
    accepted('one second before exp and tolerance', expires, signed(), at(EXP + TOLERANCE - 1)),
    refused('at exp and tolerance', 'token_expired', expires, signed(), at(EXP + TOLERANCE)),
    accepted('at nbf less tolerance', begins, late, at(NOW + 100 - TOLERANCE)),
    refused(
      'one second before nbf less tolerance',
      'token_not_yet_valid',
      begins,
      late,
      at(NOW + 99 - TOLERANCE),
    ),
    accepted('at iat less tolerance', issued, signed(), at(NOW - TOLERANCE)),
    refused(
      'one second before iat less tolerance',
      'token_not_yet_valid',
      issued,
      signed(),
      at(NOW - TOLERANCE - 1),
    ),
    accepted(
      'exp with a fraction',
      'A time may have a fraction (RFC 7519, section 2).',
      signed(bare({ exp: EXP + 0.5 })),
      at(EXP + TOLERANCE + 0.25),
    ),
    refused(
      'exp in milliseconds',
      'invalid_claim',
      'Times are seconds.',
      signed(bare({ exp: EXP * 1000 })),
    ),
    refused(
      'nbf a string',
      'invalid_claim',
      'Times are numbers.',
      signed(bare({ nbf: String(NOW) })),
    ),
  ];
}

function methods() {
  const post = 'This format is sent by POST alone.';
  return [
    refused('HEAD', 'method_not_allowed', post, signed(), { method: 'HEAD' }),
    refused(
      'HEAD with the digest of a body',
      'method_not_allowed',
      post,
      carrying(hashOf('sha-256', BODY)),
      { method: 'HEAD' },
    ),
  ];
}

function bodies() {
  const exact = 'The digest is over the exact bytes of the body.';
  const grammar =
    'hash is one of the six names of this format, a colon, and hex of the exact length.';
  const sha256 = hashOf('sha-256', BODY);
  const hex = sha256.slice('sha-256:'.length);
  const bytes = Buffer.from([0, 255, 10, 13, 128]);
  const sent = (body) => ({ body, payload: 'body' });
  return [
    ...Object.keys(ALGORITHMS).map((name) =>
      accepted(`body with ${name}`, grammar, carrying(hashOf(name, BODY)), sent(BODY)),
    ),
    ...Object.keys(ALGORITHMS).map((name) =>
      refused(
        `another body with ${name}`,
        'hash_mismatch',
        exact,
        carrying(hashOf(name, BODY)),
        sent(`${BODY} `),
      ),
    ),
    accepted('a body of bytes', exact, carrying(hashOf('sha-256', bytes)), sent(bytes)),
    accepted('hex in upper case', grammar, carrying(`sha-256:${hex.toUpperCase()}`), sent(BODY)),
    ...[
      ['sha256', `sha256:${hex}`],
      ['upper-case name', `SHA-256:${hex}`],
      ['sha-1', `sha-1:${createHash('sha1').update(BODY).digest('hex')}`],
      ['one digit short', sha256.slice(0, -1)],
      ['base64', `sha-256:${createHash('sha256').update(BODY).digest('base64')}`],
      ['no name', hex],
      ['empty', ''],
    ].map(([name, hash]) =>
      refused(`hash: ${name}`, 'hash_unsupported', grammar, carrying(hash), sent(BODY)),
    ),
    refused(
      'body without hash',
      'hash_required',
      'Nothing authenticates that body.',
      signed(),
      sent(BODY),
    ),
    refused(
      'one byte without hash',
      'hash_required',
      'Nothing authenticates that body.',
      signed(),
      sent(' '),
    ),
    refused('the body did not arrive', 'hash_mismatch', exact, carrying(sha256)),
    refused(
      'digest of nothing, and a body',
      'hash_mismatch',
      exact,
      carrying(hashOf('sha-256', '')),
      sent(BODY),
    ),
    accepted('no body, no hash', 'An empty body has no hash.', signed()),
    accepted('an empty body, no hash', 'An empty body has no hash.', signed(), { body: '' }),
    refused(
      'no body, the digest of nothing',
      'hash_unsupported',
      'An empty body has no hash.',
      carrying(hashOf('sha-256', '')),
    ),
  ];
}

function hashOf(name, body) {
  return `${name}:${createHash(ALGORITHMS[name]).update(body).digest('hex')}`;
}
