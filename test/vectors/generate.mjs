/**
 * Makes the vector files: `node test/vectors/generate.mjs [directory]`.
 *
 * Tokens are put together by hand from node:crypto alone, never by the package's own signer, and nothing
 * in them depends on the time or on chance: running it again gives the same files.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { claimSets } from './cases/claims.mjs';
import { compactForm } from './cases/compact-form.mjs';
import { headers } from './cases/header.mjs';
import { keyChoice } from './cases/key-choice.mjs';
import { payloads } from './cases/payload.mjs';
import { times } from './cases/times.mjs';

const groups = {
  'compact-form': compactForm,
  header: headers,
  'key-choice': keyChoice,
  claims: claimSets,
  times,
  payload: payloads,
};

const directory = process.argv[2] ?? fileURLToPath(new URL('.', import.meta.url));

for (const [group, make] of Object.entries(groups)) {
  const file = { profile: 'webhook-token', group, cases: make() };
  writeFileSync(join(directory, `${group}.json`), `${JSON.stringify(file, null, 2)}\n`);
}
