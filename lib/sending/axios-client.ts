import type { HttpService } from '@nestjs/axios';
import type { AxiosRequestConfig, AxiosResponse, InternalAxiosRequestConfig } from 'axios';
import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import type { GuardedAgents } from '../egress/guarded-agent.js';

/** Creates the module's own HttpService. */
export async function createHttpService(): Promise<HttpService> {
  const [axios, { HttpService }] = await Promise.all([import('axios'), import('@nestjs/axios')]);
  // @nestjs/axios 4 names the declarations of axios for CommonJS, version 12 those for ES modules.
  return new HttpService(deliveryAxios(axios) as never);
}

/** Creates the axios instance below the module's own HttpService. */
function deliveryAxios({
  Axios,
  AxiosHeaders,
}: typeof import('axios')): InstanceType<typeof Axios> {
  class DeliveryAxios extends Axios {
    constructor() {
      super({ headers: {} as never });
      // HttpService calls it without its object.
      this.request = this.request.bind(this);
    }

    /** Without interceptors, a complete request needs nothing of the core of axios, which takes longer than the request. */
    override async request(config: AxiosRequestConfig): Promise<never> {
      const { request, response } = this.interceptors;
      const isIntercepted = request.handlers?.length !== 0 || response.handlers?.length !== 0;
      if (isIntercepted || typeof config.adapter !== 'function') return super.request(config);
      const headers = new AxiosHeaders(config.headers as Record<string, string>);
      return config.adapter({ ...config, headers }) as Promise<never>;
    }
  }
  return new DeliveryAxios();
}

/** An axios adapter: one request by node:http, through the guarded agents, with a small answer in memory. */
export async function sendByNode(
  { AxiosError, CanceledError }: typeof import('axios'),
  config: InternalAxiosRequestConfig,
  { httpAgent, httpsAgent }: GuardedAgents,
): Promise<AxiosResponse> {
  const { url, headers, maxContentLength = -1 } = config;
  const method = config.method!.toUpperCase();
  const isSecure = url!.startsWith('https:');
  const signal = config.signal as AbortSignal | undefined;
  return new Promise((resolve, reject) => {
    const request = (isSecure ? https : http).request(url!, {
      method,
      headers: headers.toJSON(),
      agent: isSecure ? httpsAgent : httpAgent,
      signal,
    });
    const fail = (error: NodeJS.ErrnoException): void =>
      reject(
        signal?.aborted === true
          ? new CanceledError(undefined, config)
          : AxiosError.from(error, error.code, config, request),
      );
    request.on('error', fail);
    request.on('response', (answer) => {
      const chunks: Buffer[] = [];
      let length = 0;
      const succeed = (): void => {
        const { statusCode: status = 0, statusMessage: statusText = '' } = answer;
        const data = Buffer.concat(chunks, length);
        resolve({ status, statusText, headers: answer.headers as never, data, config, request });
      };
      if (method === 'HEAD' && !hasNoBody(answer)) {
        // If a body follows, it would be read as the answer to the next request on this connection.
        succeed();
        request.destroy();
        return;
      }
      answer.on('data', (chunk: Buffer) => {
        length += chunk.length;
        chunks.push(chunk);
        if (maxContentLength < 0 || length <= maxContentLength) return;
        const message = `maxContentLength size of ${maxContentLength} exceeded`;
        reject(new AxiosError(message, AxiosError.ERR_BAD_RESPONSE, config, request));
        request.destroy();
      });
      answer.on('end', succeed);
      answer.on('error', fail);
    });
    request.end(config.data as Buffer | undefined);
  });
}

/** Whether the server itself says that nothing follows the head of its answer. */
function hasNoBody({ statusCode, headers }: IncomingMessage): boolean {
  return statusCode === 204 || headers['content-length'] === '0';
}

/** Bytes of an answer that are read; beyond its status it says little. */
const MAX_ANSWER_BYTES = 65_536;

/**
 * Settings of every delivery, whatever the application has set on its HttpService for another purpose: its defaults could replace
 * the Authorization header, send the token elsewhere, or bypass the egress guard.
 */
export const DELIVERY_SETTINGS = {
  responseType: 'arraybuffer',
  decompress: false,
  maxContentLength: MAX_ANSWER_BYTES,
  maxRedirects: 0,
  // A proxy from the environment would bypass the egress guard.
  proxy: false,
  // The attempt has its own deadline; the timeout of axios does not end a slowly dripping answer.
  timeout: 0,
  auth: null,
  baseURL: '',
  // For HTTP/2, axios opens sessions without an agent, and so without the guard.
  httpVersion: 1,
  http2Options: null,
  insecureHTTPParser: false,
  params: null,
  socketPath: null,
  transport: null,
} as const;

/** The settings of a delivery that decide how it is sent, with the agents it is sent through if axios sends it. */
export type DeliverySettings = typeof DELIVERY_SETTINGS &
  Required<Pick<AxiosRequestConfig, 'httpAgent' | 'httpsAgent'>>;

/** Settings that decide which address a request is sent to. */
const DECISIVE = [
  'httpAgent',
  'httpsAgent',
  'httpVersion',
  'maxRedirects',
  'proxy',
  'socketPath',
  'transport',
];

/** Settings that only the HTTP adapter of axios supports. */
const AXIOS_ONLY = ['maxRate', 'onUploadProgress', 'onDownloadProgress'];

/** Whether interceptors and defaults have left the settings of a delivery as they are, and added none. */
export function isUnchanged(config: AxiosRequestConfig, settings: DeliverySettings): boolean {
  const { data } = config as { readonly data?: unknown };
  const names = [...Object.keys(settings), ...AXIOS_ONLY];
  return (
    (data === undefined || Buffer.isBuffer(data)) &&
    changedSetting(config, settings, names) === undefined
  );
}

/** A warning for a response that an interceptor of the application has replaced by something else. */
export const UNREADABLE =
  'HttpService did not return an Axios response (malformed_response), so every delivery is retried: an interceptor probably returns response.data. Pass the publisher an HttpService without it ("httpModule").';

/**
 * A warning if an interceptor of the application made a request bypass the egress guard, perhaps on purpose: for a proxy.
 *
 * @param outcome - the response or the error, to which axios attaches the settings that were used
 */
export function bypassWarning(asked: AxiosRequestConfig, outcome: unknown): string | undefined {
  try {
    const { config } = outcome as { config?: object };
    if (typeof config !== 'object') return undefined;
    const names = asked.adapter === undefined ? DECISIVE : ['adapter', ...DECISIVE];
    const changed = changedSetting(config, asked, names);
    return changed === undefined
      ? undefined
      : `An interceptor of HttpService replaces ${changed}: the egress guard checks the URLs of deliveries, but cannot check the addresses they are sent to. If this is not intended, pass the publisher an HttpService without the interceptor ("httpModule").`;
  } catch {
    // Reading a thrown value may throw.
    return undefined;
  }
}

/** Returns the first of the named settings that has another value; a missing one is as good as `null`, `0` or `false`. */
function changedSetting(
  config: object,
  settings: object,
  names: readonly string[],
): string | undefined {
  const [actual, expected] = [config, settings] as readonly Partial<Record<string, unknown>>[];
  return names.find((name) => (actual![name] || null) !== (expected![name] || null));
}
