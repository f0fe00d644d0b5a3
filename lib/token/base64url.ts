/** Characters that may end a text of length 2 mod 4 (low four bits zero) and 3 mod 4 (low two bits zero). */
const LAST_OF_TWO = 'AQgw';
const LAST_OF_THREE = 'AEIMQUYcgkosw048';

/**
 * Decodes base64url as strictly as RFC 7515 writes it: no padding, no white space, no foreign
 * character, unused bits zero; re-encoding the result gives the same text.
 *
 * Node's decoder skips what it does not know, so the length of what it returns tells whether it did;
 * but it reads only the low byte of a character, so that `Ł` would pass for `A`.
 *
 * @returns the bytes, or `undefined` for anything else than canonical base64url
 */
export function decodeBase64url(text: string): Buffer | undefined {
  const rest = text.length % 4;
  if (rest === 1 || text.includes('+') || text.includes('/')) return undefined;
  const last = text.charAt(text.length - 1);
  if (rest === 2 && !LAST_OF_TWO.includes(last)) return undefined;
  if (rest === 3 && !LAST_OF_THREE.includes(last)) return undefined;
  if (Buffer.byteLength(text) !== text.length) return undefined;
  const bytes = Buffer.from(text, 'base64url');
  return bytes.length === (text.length * 3) >> 2 ? bytes : undefined;
}
