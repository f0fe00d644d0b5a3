import { createHash } from 'node:crypto';

/**
 * A number in [0, 1) that hangs on the seed and on what is decided, not on the order of decisions: requests arrive in another
 * order in every run, and each meets the same fate all the same.
 */
export function chanceOf(seed, ...what) {
  const digest = createHash('sha256')
    .update([seed, ...what].join(' '))
    .digest();
  return digest.readUInt32BE() / 2 ** 32;
}
