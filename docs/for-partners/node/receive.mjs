// Receives webhooks with jose:  WEBHOOK_SECRET=… WEBHOOK_ISSUER=… node receive.mjs 8080
import { createHash, timingSafeEqual } from 'node:crypto';
import { createServer } from 'node:http';
import { isDeepStrictEqual } from 'node:util';
import { compactVerify } from 'jose';

const { WEBHOOK_SECRET, WEBHOOK_ISSUER } = process.env;
const BEARER = /^bearer ([\w-]+\.[\w-]+\.[\w-]+)$/i;
const HASH = /^(sha256|sha384|sha512|sha3-256|sha3-384|sha3-512):([0-9a-fA-F]+)$/;
const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const handled = new Map(); // in production: a unique column, written in the effect's transaction

function demand(condition) {
  if (!condition) throw new Error('refused');
}
const isObject = (value) => Object.prototype.toString.call(value) === '[object Object]';
function members(value, levels) {
  if (value === null || typeof value !== 'object') return 0;
  demand(levels > 0);
  const own = isObject(value) ? Object.keys(value).length : 0;
  return Object.values(value).reduce((sum, one) => sum + members(one, levels - 1), own);
}

async function verify(authorization) {
  const token = BEARER.exec(authorization)[1];
  const canonical = (part) => Buffer.from(part, 'base64url').toString('base64url');
  demand(token.split('.').map(canonical).join('.') === token);
  const key = Buffer.from(WEBHOOK_SECRET);
  const { payload, protectedHeader } = await compactVerify(token, key, { algorithms: ['HS256'] });
  const json = UTF8.decode(payload);
  const claims = JSON.parse(json);
  const { iss, aud, jti, txn = jti, iat, nbf = 0, exp, webhook } = claims;
  const now = Date.now() / 1000;
  // JSON.parse keeps the last of repeated members, so the colons outside strings are counted.
  demand(json.replace(/"(?:[^"\\]|\\.)*"/g, '').split(':').length - 1 === members(claims, 66));
  const { typ, b64, zip } = protectedHeader;
  demand(typeof typ === 'string' && /^(application\/)?jwt$/i.test(typ));
  demand(b64 === undefined && zip === undefined);
  demand(iss === WEBHOOK_ISSUER && aud === undefined);
  demand([jti, txn].every((id) => typeof id === 'string' && /^\P{Cc}{1,255}$/u.test(id)));
  demand([iat, nbf, exp].every(Number.isFinite) && iat < exp && exp <= iat + 3600);
  demand(Math.max(iat, nbf) - 60 <= now && now < exp + 60);
  demand(typeof webhook.event === 'string' && /^[\w-]+(\.[\w-]+)+$/.test(webhook.event));
  demand(webhook.data === undefined || isObject(webhook.data));
  return claims;
}

async function payload(webhook, request) {
  const chunks = request.method === 'HEAD' ? [] : await request.toArray();
  const body = Buffer.concat(chunks);
  if (body.length === 0 && webhook.hash === undefined) return webhook.data;
  demand(typeof webhook.hash === 'string');
  const [, algorithm, hex] = HASH.exec(webhook.hash);
  const [actual, expected] = [createHash(algorithm).update(body).digest(), Buffer.from(hex, 'hex')];
  demand(request.method === 'POST' && hex.length === 2 * actual.length);
  demand(timingSafeEqual(actual, expected));
  if (!/json/.test(request.headers['content-type']) || body.length === 0) return body;
  const data = JSON.parse(UTF8.decode(body));
  members(data, 64); // deeper data would overflow the stack of isDeepStrictEqual
  return data;
}

async function receive(request) {
  if (!['HEAD', 'POST'].includes(request.method)) return [405, { Allow: 'HEAD, POST' }];
  const authorization = request.headersDistinct.authorization?.join();
  const claims = await verify(authorization).catch(() => undefined);
  if (!claims) return [401, { 'WWW-Authenticate': 'Bearer realm="webhooks"' }];
  if (request.headers['content-length'] > 32 * 2 ** 20) return [413];
  const data = await payload(claims.webhook, request).catch(() => handled);
  if (data === handled) return [400];
  const id = claims.txn ?? claims.jti;
  if (handled.has(id))
    return [isDeepStrictEqual(handled.get(id), data) ? 204 : 401, { 'Webhook-Duplicate': 'true' }];
  console.log(claims.webhook.event, data); // your handler
  handled.set(id, data);
  return [204];
}

async function answer(request, response) {
  const [status, headers] = await receive(request).catch(() => [500]);
  const hasUnread = request.headers['content-length'] > 0 && !request.readableEnded;
  const close = hasUnread ? { Connection: 'close' } : {};
  response.writeHead(status, { 'Cache-Control': 'no-store', ...close, ...headers }).end();
}

createServer((request, response) => void answer(request, response)).listen(
  Number(process.argv[2]),
  '127.0.0.1',
);
