const SEQUENCE = 0x30;
const INTEGER = 0x02;
const SIGN_BIT = 0x80;

/**
 * Reads an ECDSA signature in DER (RFC 3279, section 2.2.3), as KMS, HSM and TLS libraries give it, and writes it as
 * r‖s (RFC 7518, section 3.4).
 *
 * Only the one encoding that DER allows is read: lengths in short form, which is all that two numbers of these sizes
 * need, integers positive and without a needless zero in front, nothing behind.
 *
 * @param size - bytes of each number: 32 for P-256, 48 for P-384
 * @returns `undefined` for anything else
 */
export function ecdsaFromDer(der: Uint8Array, size: number): Buffer | undefined {
  if (der[0] !== SEQUENCE || der[1] !== der.length - 2) return undefined;
  const r = integerAt(der, 2, size);
  if (r === undefined) return undefined;
  const s = integerAt(der, r.end, size);
  if (s?.end !== der.length) return undefined;
  const joined = Buffer.alloc(2 * size);
  joined.set(r.bytes, size - r.bytes.length);
  joined.set(s.bytes, 2 * size - s.bytes.length);
  return joined;
}

/** A positive integer of at most `size` bytes, without its sign byte. */
function integerAt(
  der: Uint8Array,
  start: number,
  size: number,
): { readonly bytes: Uint8Array; readonly end: number } | undefined {
  const length = der[start + 1];
  if (der[start] !== INTEGER || length === undefined || length === 0) return undefined;
  const end = start + 2 + length;
  const bytes = der.subarray(start + 2, end);
  const [first = 0, second = 0] = bytes;
  if (end > der.length || first >= SIGN_BIT) return undefined;
  if (first !== 0) return length <= size ? { bytes, end } : undefined;
  // A zero in front is there to keep the number positive, and for nothing else; zero itself is no signature.
  return second >= SIGN_BIT && length <= size + 1 ? { bytes: bytes.subarray(1), end } : undefined;
}
