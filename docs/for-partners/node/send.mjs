// Sends an event with jose:  WEBHOOK_SECRET=… WEBHOOK_ISSUER=… node send.mjs URL EVENT JSON
import { createHash, randomUUID } from 'node:crypto';
import { SignJWT } from 'jose';

const { WEBHOOK_SECRET, WEBHOOK_ISSUER } = process.env;

/** One attempt. Repeat it later with the same id and bytes until it returns true. */
async function send(url, event, json, id) {
  const data = JSON.parse(json);
  const isInline = /^\s*\{/.test(json) && Buffer.byteLength(JSON.stringify(data)) <= 4800;
  const webhook = isInline
    ? { event, data }
    : { event, hash: `sha256:${createHash('sha256').update(json).digest('hex')}` };
  const token = await new SignJWT({ txn: id, webhook })
    .setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
    .setIssuer(WEBHOOK_ISSUER)
    .setIssuedAt()
    .setNotBefore('0s')
    .setExpirationTime('5 minutes')
    .setJti(randomUUID())
    .sign(Buffer.from(WEBHOOK_SECRET));
  const response = await fetch(url, {
    method: isInline ? 'HEAD' : 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: isInline ? undefined : json,
    redirect: 'manual',
    signal: AbortSignal.timeout(15_000),
  });
  return isInline ? [202, 204].includes(response.status) : response.ok;
}

const [url, event, json] = process.argv.slice(2);
if (!(await send(url, event, json, randomUUID()))) process.exitCode = 1;
