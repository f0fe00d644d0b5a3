import { claims, encode, header, signature, token } from '../forge.mjs';
import { accepted, refused } from '../vector.mjs';

const RIGHT = token();
const [HEADER, CLAIMS, SIGNATURE] = RIGHT.split('.');
const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';

export function compactForm() {
  return [
    accepted(
      'the usual token',
      'Three canonical base64url parts, signed by the key of the issuer.',
      RIGHT,
    ),
    refused('empty', 'invalid_token', 'A token has three parts.', ''),
    refused('one part', 'invalid_token', 'A token has three parts.', HEADER),
    refused('two parts', 'invalid_token', 'A token has three parts.', `${HEADER}.${CLAIMS}`),
    refused('four parts', 'invalid_token', 'A token has three parts.', `${RIGHT}.${SIGNATURE}`),
    refused(
      'five parts',
      'invalid_token',
      'Five parts are an encrypted token, which this profile has not.',
      `${RIGHT}.AA.AA`,
    ),
    refused('dots alone', 'invalid_token', 'No part is empty.', '..'),
    refused('empty header', 'invalid_token', 'No part is empty.', signed('', CLAIMS)),
    refused(
      'empty claims',
      'invalid_token',
      'No part is empty; detached content is another protocol.',
      signed(HEADER, ''),
    ),
    refused('empty signature', 'invalid_token', 'No part is empty.', `${HEADER}.${CLAIMS}.`),
    refused('dot in front', 'invalid_token', 'No part is empty.', `.${RIGHT}`),
    refused('dot behind', 'invalid_token', 'A token has three parts.', `${RIGHT}.`),
    refused(
      'padded signature',
      'bad_signature',
      'Base64url in a token has no padding.',
      `${RIGHT}=`,
    ),
    refused(
      'padded header',
      'invalid_token',
      'Base64url in a token has no padding, also where the signature covers it.',
      signed(padded(headerOfLength(2)), CLAIMS),
    ),
    refused(
      'padded claims',
      'invalid_token',
      'Base64url in a token has no padding, also where the signature covers it.',
      signed(HEADER, padded(claimsOfLength(2))),
    ),
    refused(
      'space in front',
      'invalid_token',
      'A token has no white space; the header part begins with it.',
      ` ${RIGHT}`,
    ),
    refused('space behind', 'bad_signature', 'A token has no white space.', `${RIGHT} `),
    refused('newline behind', 'bad_signature', 'A token has no white space.', `${RIGHT}\n`),
    refused(
      'carriage return and newline behind',
      'bad_signature',
      'A token has no white space.',
      `${RIGHT}\r\n`,
    ),
    refused(
      'tab in the signature',
      'bad_signature',
      'A token has no white space.',
      `${HEADER}.${CLAIMS}.${SIGNATURE.slice(0, 9)}\t${SIGNATURE.slice(9)}`,
    ),
    refused(
      'newline in the header, signed',
      'invalid_token',
      'A token has no white space, also where the signature covers it.',
      signed(`${HEADER.slice(0, 8)}\n${HEADER.slice(8)}`, CLAIMS),
    ),
    refused(
      'space in the claims, signed',
      'invalid_token',
      'A token has no white space, also where the signature covers it.',
      signed(HEADER, `${CLAIMS.slice(0, 8)} ${CLAIMS.slice(8)}`),
    ),
    refused(
      'newline behind the claims, signed',
      'invalid_token',
      'A token has no white space, also where the signature covers it.',
      signed(HEADER, `${CLAIMS}\n`),
    ),
    refused(
      'unused bits set in the header',
      'invalid_token',
      'Decoding and encoding again gives the same string.',
      signed(unusedBit(headerOfLength(2)), CLAIMS),
    ),
    refused(
      'unused bits set in the claims, two characters left',
      'invalid_token',
      'Decoding and encoding again gives the same string.',
      signed(HEADER, unusedBit(claimsOfLength(2))),
    ),
    refused(
      'unused bits set in the claims, three characters left',
      'invalid_token',
      'Decoding and encoding again gives the same string.',
      signed(HEADER, unusedBit(claimsOfLength(3))),
    ),
    refused(
      'unused bits set in the signature',
      'bad_signature',
      'Many decoders read it as the right signature: compare the string, or encode again.',
      `${HEADER}.${CLAIMS}.${unusedBit(SIGNATURE)}`,
    ),
    refused(
      'a claims part of impossible length',
      'invalid_token',
      'No bytes encode to a length of 1 modulo 4.',
      signed(HEADER, `${claimsOfLength(0)}A`),
    ),
    refused(
      'plus and slash instead of minus and underscore',
      'invalid_token',
      'The alphabet is that of base64url.',
      signed(HEADER, inStandardAlphabet()),
    ),
    refused(
      'percent encoding in the claims, signed',
      'invalid_token',
      'The alphabet is that of base64url.',
      signed(HEADER, `${CLAIMS.slice(0, 4)}%2D${CLAIMS.slice(4)}`),
    ),
    refused(
      'a letter outside ASCII in the header, signed',
      'invalid_token',
      'A decoder that reads only the low byte takes U+0165 for "e".',
      signed(HEADER.replace('e', '\u0165'), CLAIMS),
    ),
    refused(
      'a letter outside ASCII in the claims, signed',
      'invalid_token',
      'A decoder that reads only the low byte takes U+0165 for "e".',
      signed(HEADER, CLAIMS.replace('e', '\u0165')),
    ),
    refused(
      'a letter outside ASCII in the signature',
      'bad_signature',
      'A comparison that reads only the low byte takes it for the right signature.',
      `${HEADER}.${CLAIMS}.${lowByteTwin(SIGNATURE)}`,
    ),
    refused(
      'a null character behind',
      'bad_signature',
      'The alphabet is that of base64url.',
      `${RIGHT}\u0000`,
    ),
    refused(
      'Bearer in front',
      'invalid_token',
      'The scheme is not part of the token.',
      `Bearer ${RIGHT}`,
    ),
    refused(
      'JSON serialisation',
      'invalid_token',
      'Only the compact form is a token.',
      JSON.stringify({ protected: HEADER, payload: CLAIMS, signature: SIGNATURE }),
    ),
    refused(
      'a shortened signature',
      'bad_signature',
      'The signature has its exact length.',
      RIGHT.slice(0, -1),
    ),
    refused(
      'a signature of half the length',
      'bad_signature',
      'The signature has its exact length; no truncated MAC.',
      `${HEADER}.${CLAIMS}.${SIGNATURE.slice(0, 22)}`,
    ),
    refused(
      'a lengthened signature',
      'bad_signature',
      'The signature has its exact length.',
      `${RIGHT}AAAA`,
    ),
    refused(
      'one bit of the signature changed',
      'bad_signature',
      'The signature holds over exactly these bytes.',
      `${HEADER}.${CLAIMS}.${flipped(SIGNATURE)}`,
    ),
    refused(
      'one character of the header changed',
      'bad_signature',
      'The signature covers the header.',
      [encode({ typ: 'JWT', alg: 'HS256' }), CLAIMS, SIGNATURE].join('.'),
    ),
    refused(
      'claims of another token',
      'bad_signature',
      'The signature covers the claims.',
      `${HEADER}.${encode(claims({ jti: 'another' }))}.${SIGNATURE}`,
    ),
    refused(
      'signature over the claims alone',
      'bad_signature',
      'The signature covers header, dot and claims.',
      `${HEADER}.${CLAIMS}.${signature(CLAIMS)}`,
    ),
    refused(
      'signature over decoded bytes',
      'bad_signature',
      'The signature covers the encoded string.',
      `${HEADER}.${CLAIMS}.${signature(JSON.stringify(header()) + JSON.stringify(claims()))}`,
    ),
    accepted('exactly 16384 bytes', 'A token has at most 16384 bytes.', ofLength(16_384)),
    refused('16385 bytes', 'token_too_large', 'A token has at most 16384 bytes.', ofLength(16_385)),
    refused(
      '16385 bytes of anything',
      'token_too_large',
      'The length is checked before anything else.',
      'a'.repeat(16_385),
    ),
  ];
}

/** Signs encoded parts as they stand. */
function signed(head, payload) {
  const input = `${head}.${payload}`;
  return `${input}.${signature(input)}`;
}

/** Claims whose encoding has this length modulo 4. */
function claimsOfLength(rest) {
  return padUntil(rest, (pad) => encode(claims({ sub: `s${pad}` })));
}

function headerOfLength(rest) {
  return padUntil(rest, (pad) => encode(header({ kid: `k${pad}` })));
}

function padUntil(rest, make) {
  const pad = ['', 'x', 'xx'].find((candidate) => make(candidate).length % 4 === rest);
  return make(pad);
}

function padded(part) {
  return part + '='.repeat((4 - (part.length % 4)) % 4);
}

/** The same bytes for a lenient decoder: the last character's lowest bit is unused. */
function unusedBit(part) {
  return part.slice(0, -1) + ALPHABET[ALPHABET.indexOf(part.at(-1)) + 1];
}

function flipped(part) {
  return ALPHABET[ALPHABET.indexOf(part[0]) ^ 1] + part.slice(1);
}

function lowByteTwin(part) {
  return String.fromCharCode(0x100 + part.charCodeAt(0)) + part.slice(1);
}

function inStandardAlphabet() {
  const part = encode(claims({ sub: '\u00ff\u00fe~~~???>>>' }));
  const standard = part.replaceAll('-', '+').replaceAll('_', '/');
  if (standard === part) throw new Error('the claims encode without the characters in question');
  return standard;
}

function ofLength(wanted) {
  for (const kid of ['k', 'kk', 'kkk', 'kkkk', 'kkkkk']) {
    const made = (pad) =>
      token(
        claims({ webhook: { event: 'order.created', data: { pad: 'x'.repeat(pad) } } }),
        header({ kid }),
      );
    const guess = Math.floor(((wanted - made(0).length) * 3) / 4);
    for (const pad of [guess - 1, guess, guess + 1]) {
      if (made(pad).length === wanted) return made(pad);
    }
  }
  throw new Error(`no token of ${wanted} bytes`);
}
