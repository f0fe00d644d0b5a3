/** A form in which a sender may hold the secret that this receiver holds in another. */
export interface SecretVariant {
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
export const SECRET_VARIANTS: readonly SecretVariant[] = [
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
