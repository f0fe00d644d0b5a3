import { createHash, type Hash } from 'node:crypto';
import { contentMark } from './content-fingerprint.js';

/** Starts the digest of an event whose data is octets, which follow. */
export function startFingerprint(event: string): Hash {
  return createHash('sha256').update(`${event}\n`);
}

/**
 * Stands for what happened, not for how it was sent: the same event may first come inline and then, after a
 * proxy refused so long a header, as a body, and a sender that builds it anew may order its members in
 * another way. JSON is therefore compared as its parsed value, an object being a set of members.
 */
export function fingerprint(event: string, data: unknown): string {
  if (Buffer.isBuffer(data)) return startFingerprint(event).update(data).digest('base64url');
  return contentMark(event, data);
}
