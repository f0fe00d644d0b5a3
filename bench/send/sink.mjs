// A receiver in its own process, which answers 204 immediately: node bench/send/sink.mjs http|https
// It verifies only the first requests of each path.
import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { createTokenVerifier, digest } from '../../dist/token/index.js';
import { ISSUER, SECRET } from '../event.mjs';
import { CERTIFICATE, CERTIFICATE_KEY, EVENT } from './settings.mjs';

const VERIFIED_EACH = 3;
/** Senders take turns, so a connection can be idle for longer than its client would keep it. */
const KEEP_ALIVE = { 'Keep-Alive': 'timeout=600' };
const verifier = createTokenVerifier({ issuers: [{ issuer: ISSUER, secret: SECRET }] });
/** Number of requests, and of verified ones, by path. */
const seen = new Map();

const server =
  process.argv[2] === 'https'
    ? https.createServer({ cert: readFileSync(CERTIFICATE), key: readFileSync(CERTIFICATE_KEY) })
    : http.createServer();
server.on('request', (request, response) => {
  const counts = seen.get(request.url) ?? { requests: 0, verified: 0 };
  seen.set(request.url, counts);
  if (++counts.requests > VERIFIED_EACH) {
    request.resume();
    response.writeHead(204, KEEP_ALIVE).end();
    return;
  }
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => {
    const holds = isGenuine(request, Buffer.concat(chunks));
    if (holds) counts.verified++;
    response.writeHead(holds ? 204 : 401, KEEP_ALIVE).end();
  });
});

function isGenuine({ method, headers }, body) {
  try {
    const { claims } = verifier.verify(headers.authorization.replace('Bearer ', ''));
    const { event, hash, data } = claims.webhook;
    const payload = method === 'HEAD' ? data : JSON.parse(body);
    const isWhole = method === 'HEAD' ? body.length === 0 : hash === digest('sha256', body);
    return event === EVENT && isWhole && payload.lines.length > 0;
  } catch {
    return false;
  }
}

// Keeps this process awake: waking it would cost the sender more CPU time than the write that does it.
const stayAwake = () => setImmediate(stayAwake);
stayAwake();

// Senders take turns, so a connection can be idle for longer than the default timeout.
server.keepAliveTimeout = 0;
server.listen(0, '127.0.0.1', () => process.send({ port: server.address().port }));
process.on('message', (path) => process.send(seen.get(path) ?? { requests: 0, verified: 0 }));
process.on('disconnect', () => process.exit(0));
