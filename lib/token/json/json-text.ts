export const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Brackets and braces differ in this bit only; digits, commas and colons all lie below `[`. */
export const BRACE_BIT = 0x20;
export const BEFORE_BRACKETS = 0x5a;
export const OPENING = 0x7b;
export const CLOSING = 0x7d;

/**
 * Finds the quote that ends a string.
 *
 * @param text - JSON
 * @param start - where the string's first quote is
 * @returns `-1` in a text that is no JSON and has no such quote
 */
export function endOfString(text: string, start: number): number {
  let end = text.indexOf('"', start + 1);
  while (text.charCodeAt(end - 1) === BACKSLASH && isEscaped(text, end)) {
    end = text.indexOf('"', end + 1);
  }
  return end;
}

function isEscaped(text: string, at: number): boolean {
  let backslashes = 0;
  while (text.charCodeAt(at - 1 - backslashes) === BACKSLASH) backslashes++;
  return backslashes % 2 === 1;
}
