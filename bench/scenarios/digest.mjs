import { sha256, sha384, sha512 } from '@noble/hashes/sha2.js';
import { sha3_256, sha3_384, sha3_512 } from '@noble/hashes/sha3.js';
import { digest } from '../../dist/token/index.js';
import { compare } from '../harness.mjs';

const NOBLE = {
  sha256,
  sha384,
  sha512,
  'sha3-256': sha3_256,
  'sha3-384': sha3_384,
  'sha3-512': sha3_512,
};

export async function run(options) {
  const results = [];
  for (const { size, bytes } of [
    { size: '1 kB', bytes: Buffer.alloc(1_000, 7) },
    { size: '1 MB', bytes: Buffer.alloc(1_000_000, 7) },
  ]) {
    for (const [algorithm, noble] of Object.entries(NOBLE)) {
      results.push(
        await compare(
          `${algorithm} of ${size}`,
          {
            'nestjs-webhook-token': () => digest(algorithm, bytes),
            '@noble/hashes': () => `${algorithm}:${Buffer.from(noble(bytes)).toString('hex')}`,
          },
          options,
        ),
      );
    }
  }
  return results;
}
