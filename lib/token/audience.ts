import { isIdentifier } from './identifier.js';

/**
 * Tells whether a value can be the claim `aud`: one name, or a list of at least one.
 *
 * @see RFC 7519, section 4.1.3
 */
export function isAudience(value: unknown): value is string | readonly string[] {
  return Array.isArray(value) ? value.length > 0 && value.every(isIdentifier) : isIdentifier(value);
}
