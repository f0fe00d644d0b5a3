import { decodeUtf8In } from './strict-json.js';
import { MAX_TOKEN_BYTES } from '../webhook-token.constants.js';

/** Characters that may end a text of length 2 mod 4 (low four bits zero) and 3 mod 4 (low two bits zero). */
const LAST_OF_TWO = 'AQgw';
const LAST_OF_THREE = 'AEIMQUYcgkosw048';

/** For most texts V8 knows without looking at a character that there is none. */
const BEYOND_ONE_BYTE = /[\u0100-\uffff]/;

/** Bytes that the UTF-8 of one UTF-16 unit can take. */
const MOST_BYTES_A_UNIT = 3;

/**
 * Room for the text of one segment at a time. Fresh memory for each would cost more than decoding it does
 * (scenario `token` of the benchmarks, 6 kB); nothing here waits, so nobody else can be using it.
 */
const room = Buffer.allocUnsafeSlow(MAX_TOKEN_BYTES * MOST_BYTES_A_UNIT);

/**
 * Decodes base64url as strictly as RFC 7515 writes it: no padding, no white space, no foreign
 * character, unused bits zero; re-encoding the result gives the same text.
 *
 * @returns the bytes, or `undefined` for anything else than canonical base64url
 */
export function decodeBase64url(text: string): Buffer | undefined {
  if (!mayBeCanonical(text)) return undefined;
  const bytes = Buffer.from(text, 'base64url');
  return bytes.length === decodedLength(text) ? bytes : undefined;
}

/**
 * Decodes base64url of UTF-8, both as strictly as {@link decodeBase64url} and {@link decodeUtf8In} do.
 *
 * @returns the text, or `undefined`
 */
export function decodeBase64urlText(text: string): string | undefined {
  if (!mayBeCanonical(text)) return undefined;
  const length = decodedLength(text);
  if (length > room.length || room.write(text, 0, 'base64url') !== length) return undefined;
  return decodeUtf8In(room, length);
}

/** Encodes the UTF-8 of a text. */
export function encodeBase64urlText(text: string): string {
  if (text.length > MAX_TOKEN_BYTES) return Buffer.from(text).toString('base64url');
  return room.toString('base64url', 0, room.write(text, 0, 'utf8'));
}

/**
 * Node's decoder skips what it does not know, so the length of what it gives tells whether it did; but it
 * takes the other alphabet too, and reads only the low byte of a character, so that `Ł` would pass for `A`.
 */
function mayBeCanonical(text: string): boolean {
  const rest = text.length % 4;
  if (rest === 1 || text.includes('+') || text.includes('/')) return false;
  const last = text.charAt(text.length - 1);
  if (rest === 2 && !LAST_OF_TWO.includes(last)) return false;
  if (rest === 3 && !LAST_OF_THREE.includes(last)) return false;
  return !BEYOND_ONE_BYTE.test(text);
}

function decodedLength(text: string): number {
  return (text.length * 3) >> 2;
}
