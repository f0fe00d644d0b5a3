// Sends COUNT bodies concurrently, then exits: node bench/memory/sender.mjs PORT COUNT
import { once } from 'node:events';
import { request } from 'node:http';
import { createTokenSigner } from '../../dist/token/index.js';
import { ISSUER, SECRET } from '../event.mjs';
import { BODY, CHUNK, CHUNKS, PATH, sha256 } from './settings.mjs';

const [, , port, count] = process.argv.map(Number);
const signer = createTokenSigner({ issuer: ISSUER, key: SECRET });
const hash = `sha256:${sha256()}`;

await Promise.all(Array.from({ length: count }, send));

async function send() {
  const token = /** @type {string} */ (signer.sign({ event: 'export.finished', hash }));
  const headers = {
    authorization: `Bearer ${token}`,
    'content-type': 'application/octet-stream',
    'content-length': BODY,
  };
  const outgoing = request({ host: '127.0.0.1', port, method: 'POST', path: PATH, headers });
  const answered = once(outgoing, 'response');
  for (let i = 0; i < CHUNKS; i++) {
    if (!outgoing.write(CHUNK)) await once(outgoing, 'drain');
  }
  outgoing.end();
  const [response] = await answered;
  response.resume();
  if (response.statusCode !== 204)
    throw new Error(`A body was answered with ${response.statusCode}.`);
}
