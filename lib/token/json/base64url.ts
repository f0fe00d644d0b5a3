import { decodeUtf8 } from './strict-json.js';

/** Last characters of a canonical string of length 2 mod 4 (low four bits zero) and 3 mod 4 (low two bits zero). */
const LAST_OF_TWO = 'AQgw';
const LAST_OF_THREE = 'AEIMQUYcgkosw048';

/** For a string that V8 stores in Latin-1, this test reads no character. */
const NOT_LATIN1 = /[\u0100-\uffff]/;

/**
 * Decodes canonical base64url (RFC 7515, section 2): no padding, white space or other characters, unused bits zero.
 * Encoding the result gives the same string.
 *
 * @returns the bytes, or `undefined` for anything else
 */
export function decodeBase64url(text: string): Buffer | undefined {
  if (!mayBeCanonical(text)) return undefined;
  const bytes = Buffer.from(text, 'base64url');
  return bytes.length === (text.length * 3) >> 2 ? bytes : undefined;
}

/**
 * Decodes base64url of UTF-8, with the strictness of {@link decodeBase64url} and {@link decodeUtf8}.
 *
 * @returns the string, or `undefined`
 */
export function decodeBase64urlText(text: string): string | undefined {
  const bytes = decodeBase64url(text);
  return bytes && decodeUtf8(bytes);
}

/** Encodes the UTF-8 of a string. */
export function encodeBase64urlText(text: string): string {
  return Buffer.from(text).toString('base64url');
}

/**
 * Checks what the decoded length does not reveal. Node skips unknown characters, which shortens the result, but it also
 * accepts the other alphabet, and it reads only the low byte of a character, so `Ł` would pass for `A`.
 */
function mayBeCanonical(text: string): boolean {
  const rest = text.length % 4;
  if (rest === 1 || text.includes('+') || text.includes('/')) return false;
  const last = text.charAt(text.length - 1);
  if (rest === 2 && !LAST_OF_TWO.includes(last)) return false;
  if (rest === 3 && !LAST_OF_THREE.includes(last)) return false;
  return !NOT_LATIN1.test(text);
}
