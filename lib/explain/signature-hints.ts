import type { CompactToken } from '../token/compact-token.js';
import { HmacKey } from '../token/keys/hmac-key.js';
import type { IssuerKeys, TrustedIssuers, VerificationKey } from '../token/keys/key-source.js';

/** Keys of other issuers that one explanation tries; a receiver may trust ten thousand issuers. */
const MAX_KEYS = 2_000;

/** A key or secret with which an invalid signature would be valid. */
type SignatureFinding =
  | { readonly kind: 'secret'; readonly premise: string }
  /** A key of the issuer that the token's `kid` does not select. */
  | { readonly kind: 'key'; readonly kid: string | undefined }
  | { readonly kind: 'issuer'; readonly issuer: string };

/**
 * Searches for a key or secret with which an invalid signature would be valid. A secret never leaves this file; the result
 * names only the mistake that was made with it.
 *
 * @param issuer - the trusted issuer that the token names, if any
 * @param now - seconds since the epoch
 */
export async function findSignature(
  token: CompactToken,
  alg: string,
  issuer: IssuerKeys | undefined,
  trusted: TrustedIssuers,
  now: number,
): Promise<SignatureFinding | undefined> {
  const own = issuer === undefined ? [] : await keysOf(issuer, now);
  const other = await firstThatVerifies(own, alg, token);
  if (other !== undefined) return { kind: 'key', kid: other.kid };
  for (const { premise, change } of SECRET_VARIANTS) {
    const holds = own.some(
      (key) => key.alg === alg && key instanceof HmacKey && key.verifiesUnder(token, change),
    );
    if (holds) return { kind: 'secret', premise };
  }
  let tried = 0;
  for (const another of trusted.all?.() ?? []) {
    if (another.issuer === issuer?.issuer) continue;
    const keys = another.known?.() ?? [];
    tried += keys.length;
    if (tried > MAX_KEYS) return undefined;
    if ((await firstThatVerifies(keys, alg, token)) !== undefined) {
      return { kind: 'issuer', issuer: another.issuer };
    }
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

/** A form of the receiver's secret that a sender may have used by mistake. */
interface SecretVariant {
  /** Completes "the signature is valid if …". */
  readonly premise: string;
  /** The sender's bytes, from the receiver's; `undefined` if the secret has no such form. */
  readonly change: (secret: Buffer) => Buffer | undefined;
}

const after = (text: string) => (secret: Buffer) => Buffer.concat([secret, Buffer.from(text)]);
const around =
  (before: string, behind = '') =>
  (secret: Buffer) =>
    Buffer.concat([Buffer.from(before), secret, Buffer.from(behind)]);

/** Mistakes in copying, storing or decoding a secret, likely ones first. */
const SECRET_VARIANTS: readonly SecretVariant[] = [
  { premise: 'a line feed is added to the end of the secret', change: after('\n') },
  {
    premise: 'a carriage return and a line feed are added to the end of the secret',
    change: after('\r\n'),
  },
  { premise: 'a space is added to the end of the secret', change: after(' ') },
  { premise: 'a tab is added to the end of the secret', change: after('\t') },
  { premise: 'a zero byte is added to the end of the secret', change: after('\0') },
  { premise: 'a space is added to the start of the secret', change: around(' ') },
  { premise: 'a byte order mark is added to the start of the secret', change: around('\uFEFF') },
  { premise: 'the secret is put in double quotes', change: around('"', '"') },
  { premise: 'the secret is put in single quotes', change: around("'", "'") },
  { premise: "the white space around this receiver's secret is removed", change: trimmed },
  {
    premise: 'the string "whsec_…" itself is used as the bytes',
    change: (secret) => Buffer.from(`whsec_${secret.toString('base64')}`),
  },
  {
    premise: 'the string "whsec_…" without its padding is used as the bytes',
    change: (secret) => Buffer.from(`whsec_${unpadded(secret.toString('base64'))}`),
  },
  {
    premise: 'the base64 string of the secret is used as the bytes',
    change: (secret) => Buffer.from(secret.toString('base64')),
  },
  {
    premise: 'the base64 string of the secret, without its padding, is used as the bytes',
    change: (secret) => Buffer.from(unpadded(secret.toString('base64'))),
  },
  {
    premise: 'the base64url string of the secret is used as the bytes',
    change: (secret) => Buffer.from(secret.toString('base64url')),
  },
  {
    premise: 'the hexadecimal string of the secret is used as the bytes',
    change: (secret) => Buffer.from(secret.toString('hex')),
  },
  { premise: 'the secret is decoded from base64', change: (secret) => decoded(secret, 'base64') },
  {
    premise: 'the secret is decoded from base64url',
    change: (secret) => decoded(secret, 'base64url'),
  },
  { premise: 'the secret is decoded from hexadecimal', change: (secret) => decoded(secret, 'hex') },
];

function trimmed(secret: Buffer): Buffer | undefined {
  const text = secret.toString('latin1');
  const trim = text.trim();
  return trim === text ? undefined : Buffer.from(trim, 'latin1');
}

function unpadded(base64: string): string {
  return base64.replace(/=+$/, '');
}

/** Requires the whole string to be in the encoding: Node's decoders stop at, or skip, other characters. */
function decoded(secret: Buffer, encoding: 'base64' | 'base64url' | 'hex'): Buffer | undefined {
  const text = secret.toString('latin1');
  const bytes = Buffer.from(text, encoding);
  const again = unpadded(bytes.toString(encoding));
  return again === (encoding === 'hex' ? text.toLowerCase() : unpadded(text)) ? bytes : undefined;
}
