import { request as httpRequest, type IncomingMessage, type Server } from 'node:http';
import { Server as HttpsServer } from 'node:https';
import { type Duplex, duplexPair } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import type { INestApplication, INestApplicationContext } from '@nestjs/common';
import { isJsonType } from '../token/payload.js';
import { ScopeCheck } from '../webhook.module.js';

/** By the provider that an application shares with its testing module: resolves with the one that was initialised. */
const initialisations = new WeakMap<ScopeCheck, Promise<INestApplicationContext>>();

/** Initialises an application, unless that was done or is being done. */
export async function initialise(context: INestApplicationContext): Promise<void> {
  const check = context.get(ScopeCheck, { strict: false });
  // Nest runs the hooks of all providers again for each of the contexts, and only an application knows that it has run them.
  if (!initialisations.has(check) && (isHttp(context) || !check.hasPassed)) {
    const initialised = context.init().then(() => context);
    initialisations.set(check, initialised);
  }
  const initialised = await initialisations.get(check);
  if (!isHttp(context)) return;
  if (!isHttp(initialised!)) {
    throw new Error(
      'The application has no routes, because its testing module was initialised first: call app.init() before flushDeliveries(testing), or use flushDeliveries(app).',
    );
  }
  // Fastify builds its router when it gets ready, which happens with `listen` otherwise.
  const adapter = context.getHttpAdapter();
  const instance = adapter.getInstance() as { ready?: () => PromiseLike<unknown> };
  if (adapter.getType() === 'fastify') await instance.ready?.();
}

/** Whether the context takes requests, which a testing module and a microservice do not. */
export function isHttp(context: INestApplicationContext): context is INestApplication {
  return 'getHttpServer' in context;
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

function parse(body: string, contentType: string | undefined): unknown {
  if (body === '') return undefined;
  if (!isJsonType(contentType)) return body;
  try {
    return JSON.parse(body);
  } catch {
    return body;
  }
}
