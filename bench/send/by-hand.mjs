// Typical hand-written senders. Each creates a `send()` that signs, sends, and returns the status.
import { createHash, randomUUID } from 'node:crypto';
import http from 'node:http';
import https from 'node:https';
import { HttpModule, HttpService } from '@nestjs/axios';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { SignJWT } from 'jose';
import { firstValueFrom, retry, timeout, timer } from 'rxjs';
import { createTokenSigner, digest } from '../../dist/token/index.js';
import { ISSUER, SECRET } from '../event.mjs';
import { EVENT } from './settings.mjs';

const signer = createTokenSigner({ issuer: ISSUER, key: SECRET });
const bytes = new TextEncoder().encode(SECRET);

export const BY_HAND = {
  async 'http-service'(url, { method, data }) {
    const http = await httpService();
    return async () => {
      const { headers, body } = signed(method, data);
      const { status } = await firstValueFrom(http.request({ method, url, data: body, headers }));
      return status;
    };
  },

  /** Each call may have its own data. */
  async jose(url, { method, data }) {
    const http = await httpService();
    return async (own = data) => {
      const { headers, body } = await signedByJose(method, own);
      const { status } = await firstValueFrom(http.request({ method, url, data: body, headers }));
      return status;
    };
  },

  async 'http-service-retry'(url, { method, data }) {
    const http = await httpService();
    return async () => {
      const { headers, body } = signed(method, data);
      const answer = http
        .request({ method, url, data: body, headers })
        .pipe(timeout(15_000), retry({ count: 5, delay: (_, count) => timer(1_000 * 2 ** count) }));
      return (await firstValueFrom(answer)).status;
    };
  },

  async 'node-http'(url, { method, data }) {
    const post = nodeHttp(url, method);
    return async () => post(signed(method, data));
  },

  /** Each call may have its own data. */
  async 'node-http-jose'(url, { method, data }) {
    const post = nodeHttp(url, method);
    return async (own = data) => post(await signedByJose(method, own));
  },
};

/** A request with keep-alive; resolves to the status. */
function nodeHttp(url, method) {
  const { protocol, hostname, port, pathname: path } = new URL(url);
  const client = protocol === 'https:' ? https : http;
  const agent = new client.Agent({ keepAlive: true });
  return ({ headers, body }) =>
    new Promise((resolve, reject) => {
      const sent = client.request({ hostname, port, path, method, headers, agent }, (answer) => {
        answer.on('end', () => resolve(answer.statusCode));
        answer.on('error', reject);
        answer.resume();
      });
      sent.on('error', reject);
      sent.end(body);
    });
}

async function httpService() {
  class App {}
  Module({ imports: [HttpModule] })(App);
  const app = await NestFactory.createApplicationContext(App, { logger: ['error'] });
  return app.get(HttpService, { strict: false });
}

function signed(method, data) {
  if (method === 'HEAD') return { headers: headersOf(signer.sign({ event: EVENT, data })) };
  const body = Buffer.from(JSON.stringify(data));
  const token = signer.sign({ event: EVENT, hash: digest('sha256', body) });
  return { body, headers: headersOf(token, body) };
}

/** As in jose's documentation: the secret as bytes, which jose imports on every call. */
async function signedByJose(method, data) {
  const body = method === 'HEAD' ? undefined : Buffer.from(JSON.stringify(data));
  const content =
    body === undefined
      ? { data }
      : { hash: `sha256:${createHash('sha256').update(body).digest('hex')}` };
  const token = await new SignJWT({ webhook: { event: EVENT, ...content } })
    .setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
    .setIssuer(ISSUER)
    .setIssuedAt()
    .setNotBefore('0s')
    .setExpirationTime('5m')
    .setJti(randomUUID())
    .sign(bytes);
  return { body, headers: headersOf(token, body) };
}

function headersOf(token, body) {
  return {
    Authorization: `Bearer ${token}`,
    'Content-Type': 'application/json',
    'Content-Length': String(body?.length ?? 0),
  };
}
