import { hash } from 'node:crypto';

/**
 * Identifies the content of an event by the digest of its body.
 *
 * @param digest - `<algorithm>:<hex>`
 */
export function digestFingerprint(event: string, digest: string): string {
  return hash('sha256', `${event}\n${digest}`, 'base64url');
}

/**
 * Identifies the content of an event by its value, however it was sent: an event may first arrive in the token and then, after
 * a proxy refused the long header, as a body, and a sender may order its members differently.
 *
 * @param value - from `JSON.parse`, nested at most 64 levels; `undefined` for no data
 */
export function contentFingerprint(event: string, value: unknown): string {
  return hash(
    'sha256',
    `${event}\n${value === undefined ? '' : canonicalJson(value)}`,
    'base64url',
  );
}

/** JSON without white space and with sorted members: two values are equal if, and only if, these strings are. */
function canonicalJson(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join()}]`;
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${canonicalJson(member)}`).join()}}`;
}
