import {
  claims,
  header,
  ISSUER,
  keys,
  NEXT_SECRET,
  OTHER_ISSUER,
  OTHER_SECRET,
  SECRET,
  token,
} from '../forge.mjs';
import { accepted, refused, trusting } from '../vector.mjs';

const BOTH_ISSUERS = {
  issuers: [
    { issuer: ISSUER, secrets: [SECRET] },
    { issuer: OTHER_ISSUER, secrets: [OTHER_SECRET] },
  ],
};
const ROTATING = { issuers: [{ issuer: ISSUER, secrets: [NEXT_SECRET, SECRET] }] };
const NAMED = trusting(
  { kid: 'old', alg: 'HS256', secret: SECRET },
  { kid: 'new', alg: 'HS256', secret: NEXT_SECRET },
);
const MANY = trusting(
  ...[1, 2, 3, 4, 5].map((n) => ({
    kid: `k${n}`,
    alg: 'HS256',
    secret: n === 5 ? SECRET : `${n}${NEXT_SECRET}`,
  })),
);

export function keyChoice() {
  const named = (kid, key = keys.secret) => token(claims(), header({ kid }), { key });
  const other = claims({ iss: OTHER_ISSUER });
  return [
    accepted('one of two issuers', 'The key is chosen by iss.', token(), {
      verifier: BOTH_ISSUERS,
    }),
    accepted(
      'the other of two issuers',
      'The key is chosen by iss.',
      token(other, header(), { key: keys.otherSecret }),
      { verifier: BOTH_ISSUERS },
    ),
    refused(
      'signed with the key of the other issuer',
      'bad_signature',
      'A key belongs to one issuer.',
      token(claims(), header(), { key: keys.otherSecret }),
      { verifier: BOTH_ISSUERS },
    ),
    refused(
      'names the other issuer, signed with its own key',
      'bad_signature',
      'A key belongs to one issuer.',
      token(other),
      { verifier: BOTH_ISSUERS },
    ),
    refused(
      'an unknown issuer',
      'wrong_issuer',
      'Only configured issuers are trusted.',
      token(claims({ iss: 'https://nobody.example' })),
      { verifier: BOTH_ISSUERS },
    ),
    refused(
      'an issuer named __proto__',
      'wrong_issuer',
      'An issuer is only ever a key of a map without a prototype.',
      token(claims({ iss: '__proto__' })),
      { verifier: BOTH_ISSUERS },
    ),
    refused(
      'no issuer, where several are trusted',
      'wrong_issuer',
      'Without iss no key can be chosen.',
      token(claims({ iss: undefined })),
      { verifier: BOTH_ISSUERS },
    ),
    refused(
      'iss a list, where several are trusted',
      'wrong_issuer',
      'iss is a string.',
      token(claims({ iss: [ISSUER] })),
      { verifier: BOTH_ISSUERS },
    ),
    refused(
      'claims that are no JSON, where several are trusted',
      'invalid_token',
      'The claims are one JSON object.',
      token('iss'),
      { verifier: BOTH_ISSUERS },
    ),
    refused(
      'iss twice, the other issuer first',
      'invalid_claim',
      'With a duplicate member, two parsers see two issuers.',
      token(`{"iss":"${OTHER_ISSUER}",${JSON.stringify(claims()).slice(1)}`),
      { verifier: BOTH_ISSUERS },
    ),
    refused(
      'the only issuer has another name',
      'wrong_issuer',
      'iss is compared exactly.',
      token(claims({ iss: `${ISSUER}/` })),
    ),
    refused(
      'the issuer in other case',
      'wrong_issuer',
      'iss is compared exactly.',
      token(claims({ iss: ISSUER.toUpperCase() })),
    ),
    accepted(
      'rotation: the new secret',
      'While secrets overlap, each of them holds.',
      token(claims(), header(), { key: keys.nextSecret }),
      { verifier: ROTATING },
    ),
    accepted('rotation: the old secret', 'While secrets overlap, each of them holds.', token(), {
      verifier: ROTATING,
    }),
    refused(
      'rotation: neither secret',
      'bad_signature',
      'The signature is that of a configured key.',
      token(claims(), header(), { key: keys.otherSecret }),
      { verifier: ROTATING },
    ),
    accepted(
      'kid of a token, key without a name',
      'A key without a name serves any kid.',
      named('whatever'),
    ),
    accepted('kid names the key', 'The key is chosen by kid.', named('old'), { verifier: NAMED }),
    accepted(
      'no kid, two named keys',
      'Without kid every key of the issuer is tried, at most four.',
      token(),
      { verifier: NAMED },
    ),
    refused(
      'kid names the other key',
      'bad_signature',
      'kid decides; no other named key is tried.',
      named('new'),
      { verifier: NAMED },
    ),
    refused(
      'kid names no key',
      'unknown_key',
      'kid decides; no other named key is tried.',
      named('older'),
      { verifier: NAMED },
    ),
    refused('kid in other case', 'unknown_key', 'kid is compared exactly.', named('OLD'), {
      verifier: NAMED,
    }),
    accepted(
      'five keys and a kid',
      'The key is chosen by kid, however many there are.',
      named('k5'),
      { verifier: MANY },
    ),
    refused(
      'five keys and no kid',
      'unknown_key',
      'Without kid at most four keys are tried; more would be a lever for forged tokens.',
      token(),
      { verifier: MANY },
    ),
    accepted(
      'named and unnamed key, kid names neither',
      'A key without a name serves any kid.',
      named('other', keys.nextSecret),
      {
        verifier: trusting(
          { kid: 'old', alg: 'HS256', secret: SECRET },
          { alg: 'HS256', secret: NEXT_SECRET },
        ),
      },
    ),
    ...keyPairs(),
  ];
}

function keyPairs() {
  const publicKey = (alg, key, kid) => ({
    ...(kid === undefined ? {} : { kid }),
    alg,
    publicJwk: key.publicJwk,
  });
  const signed = (alg, key, change = {}) => token(claims(), header({ alg, ...change }), { key });
  const twoAlgorithms = trusting(publicKey('ES256', keys.ec, 'ec'), {
    kid: 'mac',
    alg: 'HS256',
    secret: SECRET,
  });
  const ec = signed('ES256', keys.ec);
  return [
    ...['HS384', 'HS512'].map((alg) =>
      accepted(alg, `The key is configured for ${alg}.`, signed(alg, keys.secret), {
        verifier: trusting({ alg, secret: SECRET }),
      }),
    ),
    refused(
      'HS512 cut to the length of HS256',
      'bad_signature',
      'The signature has its exact length.',
      cut(signed('HS512', keys.secret), 43),
      { verifier: trusting({ alg: 'HS512', secret: SECRET }) },
    ),
    ...[
      ['RS256', keys.rsa, keys.otherRsa],
      ['ES256', keys.ec, keys.otherEc],
      ['EdDSA', keys.ed, keys.otherEd],
    ].flatMap(([alg, key, foreign]) => [
      accepted(alg, `The key is configured for ${alg}.`, signed(alg, key), {
        verifier: trusting(publicKey(alg, key)),
      }),
      accepted(`${alg} with kid`, 'The key is chosen by kid.', signed(alg, key, { kid: 'a' }), {
        verifier: trusting(publicKey(alg, foreign, 'b'), publicKey(alg, key, 'a')),
      }),
      accepted(
        `${alg}, the second of two keys`,
        'Without kid every key of the issuer is tried.',
        signed(alg, key),
        { verifier: trusting(publicKey(alg, foreign), publicKey(alg, key)) },
      ),
      refused(
        `${alg} by a foreign key`,
        'bad_signature',
        'The signature is that of the configured key.',
        signed(alg, foreign),
        { verifier: trusting(publicKey(alg, key)) },
      ),
      refused(
        `${alg}, claims changed`,
        'bad_signature',
        'The signature covers the claims.',
        changed(signed(alg, key)),
        { verifier: trusting(publicKey(alg, key)) },
      ),
      refused(
        `${alg}, padded signature`,
        'bad_signature',
        'Base64url in a token has no padding.',
        `${signed(alg, key)}=`,
        { verifier: trusting(publicKey(alg, key)) },
      ),
      refused(
        `${alg}, newline behind`,
        'bad_signature',
        'A token has no white space.',
        `${signed(alg, key)}\n`,
        { verifier: trusting(publicKey(alg, key)) },
      ),
    ]),
    refused(
      'ES256, unused bits set in the signature',
      'bad_signature',
      'Decoding and encoding again gives the same string.',
      `${ec.slice(0, -1)}${String.fromCharCode(ec.charCodeAt(ec.length - 1) + 1)}`,
      { verifier: trusting(publicKey('ES256', keys.ec)) },
    ),
    refused(
      'ES256, signature in DER',
      'bad_signature',
      'r and s are 32 octets each, one behind the other.',
      inDer(ec),
      { verifier: trusting(publicKey('ES256', keys.ec)) },
    ),
    refused(
      'ES256, r and s zero',
      'bad_signature',
      'r and s are at least 1.',
      `${ec.split('.').slice(0, 2).join('.')}.${Buffer.alloc(64).toString('base64url')}`,
      { verifier: trusting(publicKey('ES256', keys.ec)) },
    ),
    refused(
      'the alg of one key, the kid of another',
      'invalid_token',
      'kid chooses the key, and the key the algorithm.',
      signed('HS256', keys.secret, { kid: 'ec' }),
      { verifier: twoAlgorithms },
    ),
    accepted(
      'two keys of two algorithms',
      'kid chooses the key, and the key the algorithm.',
      signed('HS256', keys.secret, { kid: 'mac' }),
      { verifier: twoAlgorithms },
    ),
    accepted(
      'two keys of two algorithms, no kid',
      'Only keys of the algorithm are tried.',
      signed('HS256', keys.secret),
      { verifier: twoAlgorithms },
    ),
  ];
}

function cut(token, length) {
  const [head, payload, signature] = token.split('.');
  return `${head}.${payload}.${signature.slice(0, length)}`;
}

function changed(token) {
  const [head, , signature] = token.split('.');
  const payload = Buffer.from(JSON.stringify(claims({ jti: 'another' }))).toString('base64url');
  return `${head}.${payload}.${signature}`;
}

function inDer(token) {
  const [head, payload, signature] = token.split('.');
  const bytes = Buffer.from(signature, 'base64url');
  const integer = (part) => {
    const value = part[0] >= 0x80 ? Buffer.concat([Buffer.alloc(1), part]) : part;
    return Buffer.concat([Buffer.from([0x02, value.length]), value]);
  };
  const both = Buffer.concat([integer(bytes.subarray(0, 32)), integer(bytes.subarray(32))]);
  const der = Buffer.concat([Buffer.from([0x30, both.length]), both]);
  return `${head}.${payload}.${der.toString('base64url')}`;
}
