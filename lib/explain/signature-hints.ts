import type { CompactToken } from '../token/compact-token.js';
import { HmacKey } from '../token/keys/hmac-key.js';
import type { IssuerKeys, TrustedIssuers } from '../token/keys/key-source.js';
import type { VerificationKey } from '../token/keys/token-key.js';

/** A form in which a sender may hold the secret that this receiver holds in another. */
interface SecretVariant {
  /** What the sender's side does, to be read after "the signature holds if". */
  readonly premise: string;
  /** The sender's bytes, from the receiver's; `undefined` where there is no such form. */
  readonly change: (secret: Buffer) => Buffer | undefined;
}

const after = (text: string) => (secret: Buffer) => Buffer.concat([secret, Buffer.from(text)]);
const around =
  (before: string, behind = '') =>
  (secret: Buffer) =>
    Buffer.concat([Buffer.from(before), secret, Buffer.from(behind)]);

/** The mistakes that are made when a secret is copied, stored or decoded; the likely ones first. */
const SECRET_VARIANTS: readonly SecretVariant[] = [
  { premise: 'a line feed follows the secret', change: after('\n') },
  { premise: 'a carriage return and a line feed follow the secret', change: after('\r\n') },
  { premise: 'a space follows the secret', change: after(' ') },
  { premise: 'a tab follows the secret', change: after('\t') },
  { premise: 'a zero byte follows the secret', change: after('\0') },
  { premise: 'a space precedes the secret', change: around(' ') },
  { premise: 'a byte order mark precedes the secret', change: around('\uFEFF') },
  { premise: 'the secret is in double quotes', change: around('"', '"') },
  { premise: 'the secret is in single quotes', change: around("'", "'") },
  { premise: 'the white space around the secret of this receiver is left out', change: trimmed },
  {
    premise: 'the text "whsec_…" itself is taken as the bytes',
    change: (secret) => Buffer.from(`whsec_${secret.toString('base64')}`),
  },
  {
    premise: 'the text "whsec_…" without its padding is taken as the bytes',
    change: (secret) => Buffer.from(`whsec_${unpadded(secret.toString('base64'))}`),
  },
  {
    premise: 'the base64 text of the secret is taken as the bytes',
    change: (secret) => Buffer.from(secret.toString('base64')),
  },
  {
    premise: 'the base64 text of the secret, without its padding, is taken as the bytes',
    change: (secret) => Buffer.from(unpadded(secret.toString('base64'))),
  },
  {
    premise: 'the base64url text of the secret is taken as the bytes',
    change: (secret) => Buffer.from(secret.toString('base64url')),
  },
  {
    premise: 'the hexadecimal text of the secret is taken as the bytes',
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

/** Only what is wholly in the encoding: Node's decoders stop at, or skip, what they do not know. */
function decoded(secret: Buffer, encoding: 'base64' | 'base64url' | 'hex'): Buffer | undefined {
  const text = secret.toString('latin1');
  const bytes = Buffer.from(text, encoding);
  const again = unpadded(bytes.toString(encoding));
  return again === (encoding === 'hex' ? text.toLowerCase() : unpadded(text)) ? bytes : undefined;
}

/** Keys that are tried for one explanation; a receiver may trust ten thousand issuers. */
const MOST_KEYS = 2_000;

/** Under what a signature holds that did not hold as it should. */
type SignatureFinding =
  | { readonly kind: 'secret'; readonly premise: string }
  /** A key of the issuer that the token's `kid` does not lead to. */
  | { readonly kind: 'key'; readonly kid: string | undefined }
  | { readonly kind: 'issuer'; readonly issuer: string };

/**
 * Looks for what a signature holds under, once it is known not to hold. Secrets stay in this room: what
 * is told of one is the mistake that was made with it.
 *
 * @param issuer - the one the token names, where it is trusted
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
    if (tried > MOST_KEYS) return undefined;
    if ((await firstThatVerifies(keys, alg, token)) !== undefined) {
      return { kind: 'issuer', issuer: another.issuer };
    }
  }
  return undefined;
}

/** Every key of an issuer that can be listed, else those that a token without `kid` may have. */
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
