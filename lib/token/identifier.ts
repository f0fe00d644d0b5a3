import { rule, type Rule } from '../options/rules.js';
import { MAX_IDENTIFIER_LENGTH, MAX_KEY_ID_LENGTH } from './webhook-token.constants.js';

/**
 * Control characters (C0 and C1), bidirectional controls and the line separators of JavaScript, which could break a log
 * line, control a terminal or show one identifier as another. Lone surrogates, which all become the same character in
 * UTF-8, so that two identifiers would become one.
 */
const UNSAFE_CHARACTER = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}\p{Cs}]/u;
const WITHOUT_UNSAFE =
  'without control characters, bidirectional controls, line separators and lone surrogates';

/** Reports whether a value is a valid `iss`, `jti`, `sub` or `txn`, or one name in `aud`. */
export function isIdentifier(value: unknown): value is string {
  return isSafeString(value, MAX_IDENTIFIER_LENGTH);
}

export function identifierRule(name: string): string {
  return `${name} must be a string of 1 to ${MAX_IDENTIFIER_LENGTH} characters ${WITHOUT_UNSAFE}`;
}

export function identifier(name = 'it'): Rule<string> {
  return rule(isIdentifier, identifierRule(name));
}

/** Whether a value can name a resource in the path of a URL: browsers resolve `.` and `..`, even if they are percent-encoded. */
export function isPathSegment(value: unknown): value is string {
  return isIdentifier(value) && value !== '.' && value !== '..';
}

export function pathSegment(name: string): Rule<string> {
  return rule(isPathSegment, `${identifierRule(name)}, and not "." or ".."`);
}

export function isKeyId(value: unknown): value is string {
  return isSafeString(value, MAX_KEY_ID_LENGTH);
}

export const KEY_ID_RULE = `kid must be a string of 1 to ${MAX_KEY_ID_LENGTH} characters ${WITHOUT_UNSAFE}`;

function isSafeString(value: unknown, maxLength: number): value is string {
  return (
    typeof value === 'string' &&
    value.length >= 1 &&
    value.length <= maxLength &&
    !UNSAFE_CHARACTER.test(value)
  );
}
