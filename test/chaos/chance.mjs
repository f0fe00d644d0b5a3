import { createHash } from 'node:crypto';

/**
 * A number in [0, 1) derived from the seed and the decision. It does not depend on the order of requests, which differs
 * between runs.
 */
export function chanceOf(seed, ...decision) {
  const digest = createHash('sha256')
    .update([seed, ...decision].join(' '))
    .digest();
  return digest.readUInt32BE() / 2 ** 32;
}
