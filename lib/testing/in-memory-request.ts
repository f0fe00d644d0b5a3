import { request as httpRequest, type IncomingMessage, type Server } from 'node:http';
import { Server as HttpsServer } from 'node:https';
import { type Duplex, duplexPair } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import type { INestApplication } from '@nestjs/common';

/** Fastify builds its router when it gets ready, which happens with `listen` otherwise. */
export async function initialise(app: INestApplication): Promise<void> {
  await app.init();
  const instance = app.getHttpAdapter().getInstance() as { ready?: () => PromiseLike<unknown> };
  if (app.getHttpAdapter().getType() === 'fastify') await instance.ready?.();
}

/** Connects to an application, which need not listen. A server of Node takes any Duplex as a connection; of HTTPS, it is one after the handshake. */
export function connectInMemory(app: INestApplication, connection: Duplex): void {
  const server = app.getHttpServer() as Server;
  server.emit(server instanceof HttpsServer ? 'secureConnection' : 'connection', connection);
}

interface InMemoryRequest {
  readonly method: 'HEAD' | 'POST';
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | undefined;
}

export interface InMemoryAnswer {
  readonly status: number;
  /** Names are in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** The parsed JSON, any other body as a string, and `undefined` without one. */
  readonly body: unknown;
  /** Why the request was refused: a code of the answer table. */
  readonly code?: string | undefined;
}

/** Sends a request over one end of a connection in memory. */
export async function requestOver(
  client: Duplex,
  path: string,
  { method, headers, body }: InMemoryRequest,
): Promise<InMemoryAnswer> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    httpRequest({
      method,
      path,
      headers: { host: 'localhost', ...headers, connection: 'close' },
      createConnection: () => client,
    })
      .on('response', resolve)
      .on('error', reject)
      .end(body);
  });
  const content = (await buffer(response)).toString();
  const received = Object.fromEntries(
    Object.entries(response.headers).map(([name, value]) => [name, [value].flat().join(', ')]),
  );
  return {
    status: response.statusCode!,
    headers: received,
    body: parse(content, received['content-type']),
    code: received['webhook-error'],
  };
}

/** Sends a request to an application. @returns the status of its answer */
export async function requestInMemory(
  app: INestApplication,
  request: InMemoryRequest & { readonly url: string },
): Promise<number> {
  const [client, server] = duplexPair();
  connectInMemory(app, server);
  const { pathname, search } = new URL(request.url);
  try {
    return (await requestOver(client, `${pathname}${search}`, request)).status;
  } finally {
    client.destroy();
    server.destroy();
  }
}

function parse(body: string, contentType = ''): unknown {
  if (body === '') return undefined;
  if (!/^application\/(?:\S+\+)?json\b/.test(contentType)) return body;
  try {
    return JSON.parse(body);
  } catch {
    return body;
  }
}
