// Signs a webhook and sends it:
//
//   node sample/send.mjs <url> <event> <JSON, or @file> [--as SHOP] [--type application/json] [--tamper]
//
// --as names the pair of variables <NAME>_ISSUER and <NAME>_SECRET to sign with, see sample.env.
// --tamper changes the body after signing.
import { readFile } from 'node:fs/promises';
import { loadEnvFile } from 'node:process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { digest, signWebhookToken } from 'nestjs-webhook-token/token';

/** JSON up to this size travels inside the token. */
const MAX_INLINE_BYTES = 6_000;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    as: { type: 'string', default: 'SHOP' },
    type: { type: 'string', default: 'application/json' },
    tamper: { type: 'boolean', default: false },
  },
});
const [url, event, payload = '{}'] = positionals;
if (url === undefined || event === undefined) {
  console.error(
    'Usage: node sample/send.mjs <url> <event> <JSON, or @file> [--as SHOP] [--type …]',
  );
  process.exit(1);
}

loadEnvFile(fileURLToPath(new URL('sample.env', import.meta.url)));
const sender = {
  issuer: process.env[`${values.as}_ISSUER`],
  key: process.env[`${values.as}_SECRET`],
};

const body = payload.startsWith('@') ? await readFile(payload.slice(1)) : Buffer.from(payload);
const fitsToken = values.type === 'application/json' && body.length <= MAX_INLINE_BYTES;
const answer = fitsToken && !values.tamper ? await sendInline() : await sendBody();

const outcome = answer.headers.get('webhook-error') ?? answer.statusText;
console.log(`${answer.status} ${outcome}`, await answer.text());

/** Sends the data as a claim of the token, without a body. */
async function sendInline() {
  const token = await signWebhookToken({ event, data: JSON.parse(body.toString()) }, sender);
  return fetch(url, { method: 'HEAD', headers: { authorization: `Bearer ${token}` } });
}

/** Sends the data as the body; the token carries its digest. */
async function sendBody() {
  const token = await signWebhookToken({ event, hash: digest('sha256', body) }, sender);
  if (values.tamper) body[0] ^= 1;
  const headers = { authorization: `Bearer ${token}`, 'content-type': values.type };
  return fetch(url, { method: 'POST', headers, body });
}
