import { isAuthenticatedRefusal } from '../request/open-request.js';
import type { RequestHeaders } from '../request/webhook-scheme.js';
import { type CompactToken, unpadded } from '../token/decoding.js';
import {
  type IssuerKeys,
  type TrustedIssuers,
  HmacKey,
  type VerificationKey,
} from '../token/keys/token-keys.js';
import type { ObservedRequest } from './observed-request.js';
import { quote } from './quote.js';
import type { Refusal } from './refusal.js';
import type { AddHint } from './webhook-explanation.interface.js';

/** Headers to which proxies move the Authorization header. */
const OTHER_HEADERS = [
  'x-forwarded-authorization',
  'x-original-authorization',
  'x-amzn-remapped-authorization',
  'proxy-authorization',
];

/** Adds a hint if a proxy has moved the Authorization header. @returns whether it has */
export function addMovedHint(headers: RequestHeaders, add: AddHint): boolean {
  const moved = OTHER_HEADERS.find((name) => headers.get(name) !== undefined);
  if (moved === undefined) return false;
  const detail = `there is no Authorization header, but there is ${moved}: a proxy has moved it`;
  add('authorization_moved', detail);
  return true;
}

/** Adds hints for a token that is refused before its signature is verified. */
export async function addTokenHints(
  observed: ObservedRequest,
  refusal: Refusal,
  add: AddHint,
): Promise<void> {
  if (refusal.step === 'authorization') addAuthorizationHint(observed, add);
  await addDamageHints(observed, add);
  const concernsKey = ['issuer', 'key', 'signature'].includes(refusal.step);
  if (concernsKey) addIssuerHint(observed, add);
  if (refusal.step === 'key') addKeyHint(observed, add);
  if (concernsKey && !refusal.authenticated) await addSignatureHint(observed, add);
}

function addAuthorizationHint({ incoming: { headers } }: ObservedRequest, add: AddHint): void {
  if (headers.get('authorization') !== undefined) return;
  if (addMovedHint(headers, add)) return;
  add(
    'authorization_missing',
    'no Authorization header arrived: the sender did not set it, or a proxy, gateway or redirect dropped it',
  );
}

async function addDamageHints({ repaired, rules }: ObservedRequest, add: AddHint): Promise<void> {
  if (repaired === undefined) return;
  const consequence = (await isSignatureValid(repaired.token, rules))
    ? 'once repaired, the signature is valid'
    : 'even if repaired, the signature is not valid';
  for (const { code, detail } of repaired.damage) add(code, `${detail}; ${consequence}`);
}

/** A token that the verifier refuses for a later reason has a valid signature. */
async function isSignatureValid(
  token: string,
  { tokens }: ObservedRequest['rules'],
): Promise<boolean> {
  try {
    await tokens.verify(token);
    return true;
  } catch (error) {
    return isAuthenticatedRefusal(error);
  }
}

function addIssuerHint({ anatomy, issuer, trusted }: ObservedRequest, add: AddHint): void {
  const iss = anatomy.claims?.['iss'];
  if (issuer !== undefined || typeof iss !== 'string' || trusted === undefined) return;
  const nearly = spellings(iss).find((one) => trusted.of(one) !== undefined);
  if (nearly === undefined) {
    add('issuer_unknown', `iss is ${quote(iss)}, which is not a trusted issuer`);
  } else {
    add(
      'issuer_nearly',
      `iss is ${quote(iss)}; did you mean ${quote(nearly)}, which is trusted? They must be identical`,
    );
  }
}

/** Likely variants of an issuer's name. */
function spellings(iss: string): string[] {
  const plain = iss.trim();
  // Without the lookbehind, many slashes take quadratic time.
  const bare = plain.replace(/(?<!\/)\/+$/, '');
  const scheme = /^https:/i.test(bare)
    ? bare.replace(/^https:/i, 'http:')
    : bare.replace(/^http:/i, 'https:');
  const host = bare.replace(/^https?:\/\//i, '');
  const all = [
    plain,
    bare,
    `${bare}/`,
    scheme,
    `${scheme}/`,
    host,
    `https://${host}`,
    `https://${host}/`,
  ];
  return [...all, ...all.map((one) => one.toLowerCase())].filter((one) => one !== iss);
}

function addKeyHint({ anatomy, candidates, issuer, trusted }: ObservedRequest, add: AddHint): void {
  const { alg, kid } = anatomy.header ?? {};
  const known = (issuer ?? trusted?.sole)?.known?.() ?? candidates;
  if (candidates.length > 0) {
    const served = [...new Set(known.map((key) => key.alg))].join(', ');
    add(
      'algorithm_mismatch',
      `the token is signed with ${quote(alg)}, but the keys of this issuer are for ${served}: a key has one algorithm`,
    );
  } else if (kid === undefined) {
    add(
      'kid_unknown',
      'the token has no kid, and the issuer has more keys than a receiver tries without one',
    );
  } else if (known.some((key) => key.kid === kid)) {
    add(
      'key_out_of_window',
      `the issuer's key ${quote(kid)} is not valid at this time: check its notBefore and notAfter`,
    );
  } else {
    const kids = known.flatMap((key) => (key.kid === undefined ? [] : [quote(key.kid)]));
    const names = kids.slice(0, 10).join(', ');
    add(
      'kid_unknown',
      `kid is ${quote(kid)}, but the issuer has ${names === '' ? 'no key with a kid' : `the keys ${names}`}`,
    );
  }
}

/** Keys of other issuers that one explanation tries; a receiver may trust ten thousand issuers. */
const MAX_KEYS = 2_000;

/**
 * Searches for a key or secret with which an invalid signature would be valid. A secret never leaves this file; the hint names
 * only the mistake that was made with it.
 */
async function addSignatureHint(
  { anatomy, issuer, trusted, now }: ObservedRequest,
  add: AddHint,
): Promise<void> {
  const token = anatomy.compact;
  const alg = anatomy.header?.['alg'];
  if (token === undefined || trusted === undefined || typeof alg !== 'string') return;
  const named = issuer ?? trusted.sole;
  const own = named === undefined ? [] : await keysOf(named, now);
  const key = await firstThatVerifies(own, alg, token);
  if (key !== undefined) {
    add(
      'other_key',
      `the signature is valid with the issuer's key ${key.kid === undefined ? 'without a kid' : quote(key.kid)}, which is not the key that the token's kid selects`,
    );
    return;
  }
  const secrets = own.filter((one): one is HmacKey => one.alg === alg && one instanceof HmacKey);
  const isFound = addSecretHint(
    (change) => secrets.some((one) => one.verifiesUnder(token, change)),
    add,
  );
  if (isFound) return;
  const other = await otherIssuer(trusted, named, alg, token);
  if (other === undefined) return;
  add(
    'other_issuer',
    `the signature is valid with a key of ${quote(other.issuer)}: the sender uses the wrong iss or the wrong key`,
  );
}

async function otherIssuer(
  trusted: TrustedIssuers,
  named: IssuerKeys | undefined,
  alg: string,
  token: CompactToken,
): Promise<IssuerKeys | undefined> {
  let tried = 0;
  for (const another of trusted.all?.() ?? []) {
    if (another.issuer === named?.issuer) continue;
    const keys = another.known?.() ?? [];
    tried += keys.length;
    if (tried > MAX_KEYS) return undefined;
    if ((await firstThatVerifies(keys, alg, token)) !== undefined) return another;
  }
  return undefined;
}

/** All keys of an issuer; if they cannot be listed, those for a token without `kid`. */
async function keysOf(issuer: IssuerKeys, now: number): Promise<readonly VerificationKey[]> {
  return issuer.known?.() ?? issuer.candidates(undefined, now);
}

async function firstThatVerifies(
  keys: readonly VerificationKey[],
  alg: string,
  token: CompactToken,
): Promise<VerificationKey | undefined> {
  for (const key of keys) {
    if (key.alg === alg && (await key.verify(token))) return key;
  }
  return undefined;
}

/** The sender's bytes, from the receiver's secret; `undefined` if the secret has no such form. */
type SecretChange = (secret: Buffer) => Buffer | undefined;

const around =
  (before: string, after: string): SecretChange =>
  (secret) =>
    Buffer.concat([Buffer.from(before), secret, Buffer.from(after)]);

const text =
  (write: (secret: Buffer) => string): SecretChange =>
  (secret) =>
    Buffer.from(write(secret));

/** Mistakes in copying, storing or decoding a secret, likely ones first; each completes "the signature is valid if …". */
const SECRET_VARIANTS: readonly (readonly [premise: string, change: SecretChange])[] = [
  ['a line feed is added to the end of the secret', around('', '\n')],
  ['a carriage return and a line feed are added to the end of the secret', around('', '\r\n')],
  ['a space is added to the end of the secret', around('', ' ')],
  ['a tab is added to the end of the secret', around('', '\t')],
  ['a zero byte is added to the end of the secret', around('', '\0')],
  ['a space is added to the start of the secret', around(' ', '')],
  ['a byte order mark is added to the start of the secret', around('\uFEFF', '')],
  ['the secret is put in double quotes', around('"', '"')],
  ['the secret is put in single quotes', around("'", "'")],
  ["the white space around this receiver's secret is removed", trimmed],
  [
    'the string "whsec_…" itself is used as the bytes',
    text((secret) => `whsec_${secret.toString('base64')}`),
  ],
  [
    'the string "whsec_…" without its padding is used as the bytes',
    text((secret) => `whsec_${unpadded(secret.toString('base64'))}`),
  ],
  [
    'the base64 string of the secret is used as the bytes',
    text((secret) => secret.toString('base64')),
  ],
  [
    'the base64 string of the secret, without its padding, is used as the bytes',
    text((secret) => unpadded(secret.toString('base64'))),
  ],
  [
    'the base64url string of the secret is used as the bytes',
    text((secret) => secret.toString('base64url')),
  ],
  [
    'the hexadecimal string of the secret is used as the bytes',
    text((secret) => secret.toString('hex')),
  ],
  ['the secret is decoded from base64', decoded('base64')],
  ['the secret is decoded from base64url', decoded('base64url')],
  ['the secret is decoded from hexadecimal', decoded('hex')],
];

/** Searches for a mistake with which the signature is valid. @returns whether there is one */
export function addSecretHint(holds: (change: SecretChange) => boolean, add: AddHint): boolean {
  const found = SECRET_VARIANTS.find(([, change]) => holds(change));
  if (found === undefined) return false;
  add('secret_form', `the signature is valid if ${found[0]}: both sides must use the same bytes`);
  return true;
}

function trimmed(secret: Buffer): Buffer | undefined {
  const string = secret.toString('latin1');
  const trim = string.trim();
  return trim === string ? undefined : Buffer.from(trim, 'latin1');
}

/** Requires the whole string to be in the encoding: Node's decoders stop at, or skip, other characters. */
function decoded(encoding: 'base64' | 'base64url' | 'hex'): SecretChange {
  return (secret) => {
    const string = secret.toString('latin1');
    const bytes = Buffer.from(string, encoding);
    const again = unpadded(bytes.toString(encoding));
    const given = encoding === 'hex' ? string.toLowerCase() : unpadded(string);
    return again === given ? bytes : undefined;
  };
}
