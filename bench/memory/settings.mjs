import { createHash } from 'node:crypto';

/** What every body is made of, again and again: nobody has to hold a whole one. */
export const CHUNK = Buffer.alloc(
  64_000,
  'A line of a large export, as it is sent in one piece.\n',
);
export const CHUNKS = 500;
/** Bytes: 32 MB. */
export const BODY = CHUNK.length * CHUNKS;

export const PATH = '/hook';

/** Of a body, in hex. */
export function sha256() {
  const hash = createHash('sha256');
  for (let i = 0; i < CHUNKS; i++) hash.update(CHUNK);
  return hash.digest('hex');
}
