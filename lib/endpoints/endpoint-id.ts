import { identifierRule, isIdentifier } from '../token/identifier.js';

/** Whether a text names a destination by itself. No endpoint of a store has such an id, or `send` could mean either. */
export function looksLikeUrl(text: string): boolean {
  return /^[a-z][a-z0-9+.-]*:\/\//i.test(text);
}

/** Tells whether a value can be the id of an endpoint in a store. */
export function isEndpointId(value: unknown): value is string {
  return isIdentifier(value) && !looksLikeUrl(value);
}

/** The rule of {@link isEndpointId} in words. */
export const ENDPOINT_ID_RULE = `${identifierRule('id')}, and no URL`;
