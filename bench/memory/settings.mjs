import { createHash } from 'node:crypto';

/** The chunk that bodies repeat, so that no process needs a complete body in memory. */
export const CHUNK = Buffer.alloc(
  64_000,
  'A line of a large export, as it is sent in one piece.\n',
);
export const CHUNKS = 500;
/** Size of a body: 32 MB. */
export const BODY = CHUNK.length * CHUNKS;

export const PATH = '/hook';

/** Digest of a body, in hex. */
export function sha256() {
  const hash = createHash('sha256');
  for (let i = 0; i < CHUNKS; i++) hash.update(CHUNK);
  return hash.digest('hex');
}
