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
import { draft00 } from './cases/draft-00.mjs';
import { draft02 } from './cases/draft-02.mjs';
import { headers } from './cases/header.mjs';
import { keyChoice } from './cases/key-choice.mjs';
import { payloads } from './cases/payload.mjs';
import { sendDraft00, sendDraft02, sendWebhookToken } from './cases/sending.mjs';
import { times } from './cases/times.mjs';

const receiving = {
  'compact-form': compactForm,
  header: headers,
  'key-choice': keyChoice,
  claims: claimSets,
  times,
  payload: payloads,
  'swt-draft-00': draft00,
  'swt-draft-02': draft02,
};
const sending = {
  'send-webhook-token': sendWebhookToken,
  'send-swt-draft-00': sendDraft00,
  'send-swt-draft-02': sendDraft02,
};

const directory = process.argv[2] ?? fileURLToPath(new URL('.', import.meta.url));

for (const [direction, groups] of Object.entries({ receive: receiving, send: sending })) {
  for (const [group, make] of Object.entries(groups)) {
    const file = { $schema: './vectors.schema.json', direction, group, cases: make() };
    writeFileSync(join(directory, `${group}.json`), `${JSON.stringify(file, null, 2)}\n`);
  }
}
