import type { HttpService } from '@nestjs/axios';
import type { AxiosRequestConfig, AxiosResponse, InternalAxiosRequestConfig } from 'axios';
import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import { requireFinalAnswer } from '../egress/guarded-agent.js';
import { ByteChunks } from '../token/payload.js';
import type { Connections } from './connections.js';

/** Creates the module's own HttpService. */
export async function createHttpService(): Promise<HttpService> {
  const [axios, { HttpService }] = await Promise.all([import('axios'), import('@nestjs/axios')]);
  // @nestjs/axios 4 names the declarations of axios for CommonJS, version 12 those for ES modules.
  return new HttpService(deliveryAxios(axios) as never);
}

/** Creates the axios instance below the module's own HttpService. */
function deliveryAxios({ Axios }: typeof import('axios')): InstanceType<typeof Axios> {
  class DeliveryAxios extends Axios {
    constructor() {
      super({ headers: {} as never });
      // HttpService calls it without its object.
      this.request = this.request.bind(this);
    }

    /** Without interceptors and defaults, a complete request needs nothing of the core of axios, which takes longer than the request. */
    override async request(config: AxiosRequestConfig): Promise<never> {
      const { request, response } = this.interceptors;
      const isIntercepted = request.handlers?.length !== 0 || response.handlers?.length !== 0;
      const hasDefaults = Object.keys(this.defaults.headers).length !== 0;
      if (isIntercepted || hasDefaults || typeof config.adapter !== 'function') {
        return super.request(config);
      }
      return config.adapter(config as InternalAxiosRequestConfig) as Promise<never>;
    }
  }
  return new DeliveryAxios();
}

/** Errors of a connection that its server has closed. */
const CLOSED: ReadonlySet<unknown> = new Set(['ECONNRESET', 'EPIPE']);

/** An axios adapter: one request by node:http, with a small answer in memory. */
export async function sendByNode(
  axios: typeof import('axios'),
  config: InternalAxiosRequestConfig,
  connections: Connections,
): Promise<AxiosResponse> {
  const { AxiosError, CanceledError } = axios;
  const { url, headers } = config;
  const maxContentLength = config.maxContentLength!;
  const body = config.data as Buffer | undefined;
  const method = config.method!.toUpperCase();
  const isSecure = url!.startsWith('https:');
  const signal = config.signal as AbortSignal | undefined;
  return new Promise((resolve, reject) => {
    const request = (isSecure ? https : http).request(url!, {
      method,
      headers: plainHeaders(headers),
      agent: connections.agentOf(config, isSecure ? 'httpsAgent' : 'httpAgent'),
    });
    requireFinalAnswer(request);
    let answer: IncomingMessage | undefined;
    const chunks = new ByteChunks();
    const succeed = ({
      statusCode: status = 0,
      statusMessage,
      headers: received,
    }: IncomingMessage): void => {
      const head = { status, statusText: statusMessage ?? '', headers: received as never };
      resolve({ ...head, data: chunks.bytes(), config, request });
    };
    const fail = (error: NodeJS.ErrnoException): void => {
      // The status and Retry-After have said what matters, whether or not the body ends.
      if (answer !== undefined && isRefusal(answer)) return succeed(answer);
      if (signal?.aborted === true) return reject(error);
      // What follows a complete answer makes the connection unusable, and nothing else.
      if (answer?.complete === true) return succeed(answer);
      // The server closed an idle connection at the moment the request was written to it. The next connection may be as old.
      if (request.reusedSocket && answer === undefined && CLOSED.has(error.code)) {
        return resolve(sendByNode(axios, config, connections));
      }
      reject(AxiosError.from(error, error.code, config, request));
    };
    request.on('error', fail);
    // Not the option `signal` of node:http, which takes twice as long as this.
    signal?.addEventListener('abort', () => {
      fail(new CanceledError(undefined, config));
      request.destroy();
    });
    request.on('response', (received) => {
      answer = received;
      let length = 0;
      if (method === 'HEAD' && !hasNoBody(received)) {
        // If a body follows, it would be read as the answer to the next request on this connection.
        succeed(received);
        request.destroy();
        return;
      }
      const isRefused = isRefusal(received);
      // A receiver that repeats the body in its answer may not have read all of it: to close the connection would lose the event.
      const most = maxContentLength + (isRefused ? 0 : (body?.length ?? 0));
      received.on('data', (chunk: Buffer) => {
        if (length <= maxContentLength) chunks.add(chunk);
        length += chunk.length;
        if (length <= most || !(isRefused || request.writableFinished)) return;
        // The status has said what matters; the rest may never end.
        succeed(received);
        request.destroy();
      });
      received.on('end', () => succeed(received));
      received.on('error', fail);
    });
    request.end(body);
  });
}

/** Without those that are `null`. The `AxiosHeaders` may be of another copy of axios: that for CommonJS. */
function plainHeaders(headers: InternalAxiosRequestConfig['headers']): http.OutgoingHttpHeaders {
  return typeof headers.toJSON === 'function' ? headers.toJSON() : headers;
}

function isRefusal({ statusCode }: IncomingMessage): boolean {
  return statusCode! >= 300;
}

/** Whether the server itself says that nothing follows the head of its answer. */
function hasNoBody({ statusCode, headers }: IncomingMessage): boolean {
  return statusCode === 204 || headers['content-length'] === '0';
}
