import { readFileSync } from 'node:fs';
import http, { type Server } from 'node:http';
import https, { type ServerOptions } from 'node:https';
import type { AddressInfo } from 'node:net';

/** A server on loopback that counts the requests that reach it. */
export interface TargetServer {
  readonly port: number;
  readonly connections: number;
  readonly requests: number;
  close(): Promise<void>;
}

export function startTarget(host = '127.0.0.1', port = 0): Promise<TargetServer> {
  return listen(http.createServer(), host, port);
}

/** Serves a self-signed certificate of `hooks.test` and 127.0.0.1. */
export function startTlsTarget(
  options: ServerOptions = {},
  host = '127.0.0.1',
  port = 0,
): Promise<TargetServer> {
  const key = readFileSync(new URL('./certificates/hooks.test.key.pem', import.meta.url));
  return listen(https.createServer({ cert: targetCertificate(), key, ...options }), host, port);
}

/** The certificate to trust for {@link startTlsTarget}. */
export function targetCertificate(): Buffer {
  return readFileSync(new URL('./certificates/hooks.test.cert.pem', import.meta.url));
}

async function listen(server: Server, host: string, port: number): Promise<TargetServer> {
  let connections = 0;
  let requests = 0;
  server.on('connection', () => connections++);
  server.on('request', (_request, response) => {
    requests++;
    response.writeHead(204).end();
  });
  await new Promise<void>((resolve) => server.listen(port, host, resolve));
  return {
    port: (server.address() as AddressInfo).port,
    get connections() {
      return connections;
    },
    get requests() {
      return requests;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
