import { decodeUtf8 } from './strict-json.js';
import { MAX_TOKEN_BYTES } from '../webhook-token.constants.js';

/** Last characters of a canonical string of length 2 mod 4 (low four bits zero) and 3 mod 4 (low two bits zero). */
const LAST_OF_TWO = 'AQgw';
const LAST_OF_THREE = 'AEIMQUYcgkosw048';

/** For a string that V8 stores in Latin-1, this test reads no character. */
const NOT_LATIN1 = /[\u0100-\uffff]/;

/** Maximum bytes of UTF-8 for one UTF-16 code unit. */
const MAX_UTF8_BYTES_PER_UNIT = 3;

/**
 * Shared buffer for one segment at a time. Allocating one for each would take longer than decoding (benchmark `token`,
 * 6 kB). Everything here is synchronous, so two calls never overlap.
 */
const scratch = Buffer.allocUnsafeSlow(MAX_TOKEN_BYTES * MAX_UTF8_BYTES_PER_UNIT);

/**
 * Decodes canonical base64url (RFC 7515, section 2): no padding, white space or other characters, unused bits zero.
 * Encoding the result gives the same string.
 *
 * @returns the bytes, or `undefined` for anything else
 */
export function decodeBase64url(text: string): Buffer | undefined {
  if (!mayBeCanonical(text)) return undefined;
  const bytes = Buffer.from(text, 'base64url');
  return bytes.length === decodedLength(text) ? bytes : undefined;
}

/**
 * Decodes base64url of UTF-8, with the strictness of {@link decodeBase64url} and {@link decodeUtf8}.
 *
 * @returns the string, or `undefined`
 */
export function decodeBase64urlText(text: string): string | undefined {
  if (!mayBeCanonical(text)) return undefined;
  const length = decodedLength(text);
  if (length > scratch.length || scratch.write(text, 0, 'base64url') !== length) return undefined;
  return decodeUtf8(scratch, length);
}

/** Encodes the UTF-8 of a string. */
export function encodeBase64urlText(text: string): string {
  if (text.length > MAX_TOKEN_BYTES) return Buffer.from(text).toString('base64url');
  return scratch.toString('base64url', 0, scratch.write(text, 0, 'utf8'));
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

function decodedLength(text: string): number {
  return (text.length * 3) >> 2;
}
