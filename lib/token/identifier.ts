import { MAX_IDENTIFIER_LENGTH, MAX_KEY_ID_LENGTH } from './webhook-token.constants.js';

/**
 * Control characters of ASCII and of Latin-1, and the two separators that end a line for JavaScript: they
 * would break a line of a log, or give orders to a terminal. Surrogates without a partner: as UTF-8 they
 * all become one and the same character, and two identifiers one.
 */
const UNSAFE_CHARACTER = /[\p{Cc}\p{Zl}\p{Zp}\p{Cs}]/u;
const WITHOUT_UNSAFE = 'without control characters, line separators and lone surrogates';

/** Tells whether a value can be an `iss`, `jti`, `sub` or `txn`, or one name of `aud`. */
export function isIdentifier(value: unknown): value is string {
  return isSafeText(value, MAX_IDENTIFIER_LENGTH);
}

/** The rule of {@link isIdentifier} in words. */
export function identifierRule(name: string): string {
  return `${name} must be a text of 1 to ${MAX_IDENTIFIER_LENGTH} characters ${WITHOUT_UNSAFE}`;
}

/** Tells whether a value can name a key. */
export function isKeyId(value: unknown): value is string {
  return isSafeText(value, MAX_KEY_ID_LENGTH);
}

/** The rule of {@link isKeyId} in words. */
export const KEY_ID_RULE = `kid must be a text of 1 to ${MAX_KEY_ID_LENGTH} characters ${WITHOUT_UNSAFE}`;

function isSafeText(value: unknown, maxLength: number): value is string {
  return (
    typeof value === 'string' &&
    value.length >= 1 &&
    value.length <= maxLength &&
    !UNSAFE_CHARACTER.test(value)
  );
}
