import { createHash } from 'node:crypto';
import {
  claims,
  encode,
  header,
  hmac,
  ISSUER,
  keys,
  NOW,
  publicPem,
  SECRET,
  signature,
  token,
} from '../forge.mjs';
import { accepted, refused, trusting } from '../vector.mjs';

const RSA = { alg: 'RS256', publicJwk: keys.rsa.publicJwk };
const EC = { alg: 'ES256', publicJwk: keys.ec.publicJwk };

export function headers() {
  return [...algorithms(), ...types(), ...extensions(), ...keyIds(), ...forms()];
}

function algorithms() {
  const unsigned = `${encode(header({ alg: 'none' }))}.${encode(claims())}`;
  const confused = (secret) => token(claims(), header(), { key: hmac(secret) });
  return [
    refused('alg none, no signature', 'invalid_token', 'A token is signed.', `${unsigned}.`),
    refused(
      'alg none, with a signature',
      'invalid_token',
      'The algorithm is that of the key, never that of the token.',
      `${unsigned}.${signature(unsigned)}`,
    ),
    refused(
      'alg nOnE',
      'invalid_token',
      'The algorithm is that of the key, never that of the token.',
      token(claims(), header({ alg: 'nOnE' })),
    ),
    refused(
      'alg in lower case',
      'invalid_token',
      'Algorithm names are case-sensitive.',
      token(claims(), header({ alg: 'hs256' })),
    ),
    refused(
      'alg missing',
      'invalid_token',
      'The header names an algorithm.',
      token(claims(), { typ: 'JWT' }),
    ),
    refused(
      'alg is null',
      'invalid_token',
      'The header names an algorithm by a string.',
      token(claims(), header({ alg: null })),
    ),
    refused(
      'alg is a list',
      'invalid_token',
      'The header names an algorithm by a string.',
      token(claims(), header({ alg: ['HS256'] })),
    ),
    refused(
      'alg HS384 with the key of HS256',
      'invalid_token',
      'A key serves one algorithm, also where the same secret could serve another.',
      token(claims(), header({ alg: 'HS384' })),
    ),
    refused(
      'alg HS512 with the key of HS256',
      'invalid_token',
      'A key serves one algorithm, also where the same secret could serve another.',
      token(claims(), header({ alg: 'HS512' })),
    ),
    refused(
      'alg says HS384, signed with HS256',
      'invalid_token',
      'A key serves one algorithm.',
      token(claims(), header({ alg: 'HS384' }), { alg: 'HS256' }),
    ),
    refused(
      'alg PS256',
      'invalid_token',
      'The algorithms are HS256, HS384, HS512, RS256, ES256 and EdDSA.',
      token(claims(), header({ alg: 'PS256' })),
    ),
    refused(
      'HMAC with the RSA public key as secret',
      'invalid_token',
      'Algorithm confusion: a key pair never verifies an HMAC.',
      confused(publicPem(keys.rsa)),
      { verifier: trusting(RSA) },
    ),
    refused(
      'HMAC with the RSA public key as secret, no last newline',
      'invalid_token',
      'Algorithm confusion: a key pair never verifies an HMAC.',
      confused(publicPem(keys.rsa).trim()),
      { verifier: trusting(RSA) },
    ),
    refused(
      'HMAC with the EC public key as secret',
      'invalid_token',
      'Algorithm confusion: a key pair never verifies an HMAC.',
      confused(publicPem(keys.ec)),
      { verifier: trusting(EC) },
    ),
    refused(
      'HMAC with the JSON of the public JWK as secret',
      'invalid_token',
      'Algorithm confusion: a key pair never verifies an HMAC.',
      confused(JSON.stringify(keys.ec.publicJwk)),
      { verifier: trusting(EC) },
    ),
    refused(
      'RS256 for an issuer with a secret',
      'invalid_token',
      'A secret never verifies a signature of a key pair.',
      token(claims(), header({ alg: 'RS256' }), { key: keys.rsa }),
    ),
    refused(
      'header says RS256, signed by HMAC with the RSA public key',
      'bad_signature',
      'The key is used under its own algorithm.',
      token(claims(), header({ alg: 'RS256' }), { alg: 'HS256', key: hmac(publicPem(keys.rsa)) }),
      { verifier: trusting(RSA) },
    ),
    refused(
      'signed with an empty secret',
      'bad_signature',
      'The signature is that of the configured key.',
      token(claims(), header(), { key: hmac('') }),
    ),
    refused(
      'signed with the digest of the secret',
      'bad_signature',
      'The secret is used as it is.',
      token(claims(), header(), { key: hmac(createHash('sha256').update(SECRET).digest()) }),
    ),
  ];
}

function types() {
  const typed = (typ) => token(claims(), header({ typ }));
  const rule = 'typ is a media type: case-insensitive, with an optional "application/".';
  return [
    accepted('typ jwt', rule, typed('jwt')),
    accepted('typ Jwt', rule, typed('Jwt')),
    accepted('typ application/jwt', rule, typed('application/jwt')),
    accepted('typ APPLICATION/JWT', rule, typed('APPLICATION/JWT')),
    refused('typ missing', 'invalid_token', 'typ is required.', typed(undefined)),
    refused('typ null', 'invalid_token', 'typ is a string.', typed(null)),
    refused('typ a list', 'invalid_token', 'typ is a string.', typed(['JWT'])),
    refused('typ empty', 'invalid_token', 'typ must be JWT.', typed('')),
    refused(
      'typ at+jwt',
      'invalid_token',
      'A token for another purpose is not a webhook token.',
      typed('at+jwt'),
    ),
    refused(
      'typ SWT',
      'invalid_token',
      'Rules of different profiles are never mixed.',
      typed('SWT'),
    ),
    refused(
      'typ secevent+jwt',
      'invalid_token',
      'A token for another purpose is not a webhook token.',
      typed('secevent+jwt'),
    ),
    refused('typ with a space', 'invalid_token', 'typ must be JWT.', typed('JWT ')),
    refused('typ text/jwt', 'invalid_token', 'typ must be JWT.', typed('text/jwt')),
    refused(
      'typ application/application/jwt',
      'invalid_token',
      'typ must be JWT.',
      typed('application/application/jwt'),
    ),
    refused(
      'typ with a dotless i',
      'invalid_token',
      'Case is folded in ASCII only: U+0131 in upper case is "I".',
      typed('appl\u0131cation/jwt'),
    ),
  ];
}

function extensions() {
  const extended = (change) => token(claims(), header(change));
  const ignored = 'A key or an address in the header is ignored; the configured key decides.';
  const self = { jwk: keys.otherEc.publicJwk };
  return [
    refused(
      'crit with an unknown extension',
      'invalid_token',
      'No extension is understood, so none may be critical.',
      extended({ crit: ['exp'], exp: NOW }),
    ),
    refused(
      'crit empty',
      'invalid_token',
      'No extension is understood, so none may be critical.',
      extended({ crit: [] }),
    ),
    refused(
      'crit null',
      'invalid_token',
      'No extension is understood, so none may be critical.',
      extended({ crit: null }),
    ),
    refused(
      'b64 false and critical',
      'invalid_token',
      'The claims are base64url.',
      extended({ b64: false, crit: ['b64'] }),
    ),
    refused(
      'b64 false',
      'invalid_token',
      'b64 is refused in any form: libraries differ about it.',
      extended({ b64: false }),
    ),
    refused(
      'b64 true',
      'invalid_token',
      'b64 is refused in any form: libraries differ about it.',
      extended({ b64: true }),
    ),
    refused(
      'b64 false, claims not encoded',
      'invalid_token',
      'The claims are base64url.',
      unencoded(),
    ),
    refused('zip', 'invalid_token', 'Nothing is compressed.', extended({ zip: 'DEF' })),
    accepted('jku', ignored, extended({ jku: 'https://attacker.example/jwks.json' })),
    accepted('x5u', ignored, extended({ x5u: 'https://attacker.example/cert.pem' })),
    accepted('x5c', ignored, extended({ x5c: ['AAAA'] })),
    accepted('jwk', ignored, extended(self)),
    accepted(
      'an unknown member',
      'Unknown header members are ignored.',
      extended({ 'x-trace': 'abc' }),
    ),
    accepted('cty', 'Unknown header members are ignored.', extended({ cty: 'json' })),
    refused(
      'jwk, signed by the key in it',
      'bad_signature',
      'The key in the header is never used.',
      token(claims(), { alg: 'ES256', typ: 'JWT', ...self }, { key: keys.otherEc }),
      { verifier: trusting(EC) },
    ),
    refused(
      'jku, signed by a foreign key',
      'bad_signature',
      'An address in the header is never followed.',
      token(claims(), header({ jku: 'https://attacker.example/jwks.json' }), {
        key: keys.otherSecret,
      }),
    ),
  ];
}

function keyIds() {
  const named = (kid) => token(claims(), header({ kid }));
  const verifier = trusting({ kid: 'k'.repeat(256), alg: 'HS256', secret: SECRET });
  return [
    accepted('kid of 256 characters', 'A kid has 1 to 256 characters.', named('k'.repeat(256)), {
      verifier,
    }),
    refused(
      'kid of 257 characters',
      'invalid_token',
      'A kid has 1 to 256 characters.',
      named('k'.repeat(257)),
    ),
    refused('kid empty', 'invalid_token', 'A kid has 1 to 256 characters.', named('')),
    refused('kid a number', 'invalid_token', 'A kid is a string.', named(1)),
    refused('kid null', 'invalid_token', 'A kid is a string.', named(null)),
    refused('kid an object', 'invalid_token', 'A kid is a string.', named({ toString: 'k' })),
    refused(
      'kid with a newline',
      'invalid_token',
      'A kid has no control characters.',
      named('k\n1'),
    ),
    refused(
      'kid with a null character',
      'invalid_token',
      'A kid has no control characters.',
      named('k\u00001'),
    ),
    refused(
      'kid with a delete character',
      'invalid_token',
      'A kid has no control characters.',
      named('k\u007f'),
    ),
    refused(
      'kid with a C1 control character',
      'invalid_token',
      'A kid has no control characters.',
      named('k\u009b1'),
    ),
    refused(
      'kid with a line separator',
      'invalid_token',
      'A kid has no separators of lines.',
      named('k\u20281'),
    ),
    refused(
      'kid with a paragraph separator',
      'invalid_token',
      'A kid has no separators of lines.',
      named('k\u20291'),
    ),
    refused(
      'kid with a lone surrogate',
      'invalid_token',
      'A kid is well-formed: as UTF-8 all lone surrogates are the same character.',
      named('k\ud800'),
    ),
    accepted(
      'kid that looks like a path',
      'A kid is only ever compared; here the key has no name and serves any.',
      named('../../dev/null'),
    ),
    accepted(
      'kid that looks like SQL',
      'A kid is only ever compared; here the key has no name and serves any.',
      named("k' OR '1'='1"),
    ),
    refused(
      'kid __proto__',
      'unknown_key',
      'A kid is only ever a key of a map without a prototype.',
      named('__proto__'),
      { verifier },
    ),
    refused(
      'kid constructor',
      'unknown_key',
      'A kid is only ever a key of a map without a prototype.',
      named('constructor'),
      { verifier },
    ),
  ];
}

function forms() {
  const rule = 'The header is one JSON object in UTF-8.';
  const twice = 'There are no duplicate members.';
  const head = (text) => token(claims(), text, { alg: 'HS256' });
  return [
    accepted(
      'header with white space and other order',
      'JSON may be written with white space, in any order.',
      head('{ "typ" : "JWT",\n "alg" : "HS256" }'),
    ),
    accepted(
      'header with an escaped member name',
      'An escaped name is the same name.',
      head('{"\\u0061lg":"HS256","typ":"JWT"}'),
    ),
    refused('header not JSON', 'invalid_token', rule, head('alg=HS256')),
    refused('header a list', 'invalid_token', rule, head('[{"alg":"HS256","typ":"JWT"}]')),
    refused('header null', 'invalid_token', rule, head('null')),
    refused('header a string', 'invalid_token', rule, head('"HS256"')),
    refused(
      'header with a byte order mark',
      'invalid_token',
      rule,
      head('\ufeff{"alg":"HS256","typ":"JWT"}'),
    ),
    refused(
      'header followed by text',
      'invalid_token',
      rule,
      head('{"alg":"HS256","typ":"JWT"}{}'),
    ),
    refused(
      'header with a trailing comma',
      'invalid_token',
      rule,
      head('{"alg":"HS256","typ":"JWT",}'),
    ),
    refused(
      'header not UTF-8',
      'invalid_token',
      rule,
      head(Buffer.from('{"alg":"HS256","typ":"JWT","x":"\xff"}', 'latin1')),
    ),
    refused('alg twice', 'invalid_token', twice, head('{"alg":"none","alg":"HS256","typ":"JWT"}')),
    refused(
      'alg twice, once escaped',
      'invalid_token',
      twice,
      head('{"alg":"none","\\u0061l\\u0067":"HS256","typ":"JWT"}'),
    ),
    refused(
      'typ twice, the same',
      'invalid_token',
      twice,
      head('{"alg":"HS256","typ":"JWT","typ":"JWT"}'),
    ),
    refused(
      'an unknown header member twice',
      'invalid_token',
      twice,
      head('{"alg":"HS256","typ":"JWT","x":1,"x":1}'),
    ),
  ];
}

function unencoded() {
  const input = `${encode(header({ b64: false }))}.${JSON.stringify({ iss: ISSUER })}`;
  return `${input}.${signature(input)}`;
}
