/** Windows writes byte order marks: PowerShell 5.1 of UTF-16, editors of UTF-8. */
function encodingOf(bytes: Buffer): 'utf-8' | 'utf-16le' | 'utf-16be' {
  const mark = bytes.toString('hex', 0, 2);
  if (mark === 'fffe') return 'utf-16le';
  return mark === 'feff' ? 'utf-16be' : 'utf-8';
}

/**
 * Decodes UTF-8, and UTF-16 with a byte order mark; leaves the mark out.
 *
 * @returns `undefined` for anything else, which Node would decode to other characters
 */
export function decodeText(bytes: Buffer): string | undefined {
  try {
    return new TextDecoder(encodingOf(bytes), { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

/** The bytes of a text as UTF-8 without a byte order mark. Other bytes stay as they are. */
export function withoutMark(bytes: Buffer): Buffer {
  if (encodingOf(bytes) !== 'utf-8') return Buffer.from(decodeText(bytes) ?? bytes);
  return bytes.toString('hex', 0, 3) === 'efbbbf' ? bytes.subarray(3) : bytes;
}
