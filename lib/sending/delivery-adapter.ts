import type {
  AxiosAdapter,
  AxiosRequestConfig,
  AxiosResponse,
  InternalAxiosRequestConfig,
} from 'axios';
import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import type { GuardedAgents } from '../egress/guarded-agent.js';

type Axios = typeof import('axios');
type Config = InternalAxiosRequestConfig;

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

/** Settings that only the HTTP adapter of axios supports. */
const AXIOS_ONLY = ['maxRate', 'onUploadProgress', 'onDownloadProgress'];

/**
 * Creates the axios adapter for deliveries: one request by node:http, through the guarded agents, with a small answer in memory.
 *
 * If an interceptor has changed one of the settings, for example to use a proxy, the HTTP adapter of axios sends the request.
 *
 * @param settings - the settings of every delivery
 * @param agents - keep connections for further requests. Those in the settings must not: axios would keep the connection of a
 *   HEAD, and a late body of its answer would be read as the answer to the next request
 */
export function deliveryAdapter(
  axios: Axios,
  settings: DeliverySettings,
  agents: GuardedAgents,
): AxiosAdapter {
  const stock = axios.getAdapter('http');
  return async (config) =>
    isPlain(config, settings) ? exchange(axios, config, agents) : stock(config);
}

/** Creates the axios instance below the module's own HttpService. */
export function deliveryAxios({ Axios, AxiosHeaders }: Axios): InstanceType<Axios['Axios']> {
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

/** Whether interceptors and defaults have left the settings of a delivery as they are, and added none. */
function isPlain(config: Config, settings: DeliverySettings): boolean {
  const { data } = config as { readonly data?: unknown };
  const names = [...Object.keys(settings), ...AXIOS_ONLY];
  return (
    (data === undefined || Buffer.isBuffer(data)) &&
    changedSetting(config, settings, names) === undefined
  );
}

/** Returns the first of the named settings that has another value; a missing one is as good as `null`, `0` or `false`. */
export function changedSetting(
  config: object,
  settings: object,
  names: readonly string[],
): string | undefined {
  const [actual, expected] = [config, settings] as readonly Partial<Record<string, unknown>>[];
  return names.find((name) => (actual![name] || null) !== (expected![name] || null));
}

async function exchange(
  { AxiosError, CanceledError }: Axios,
  config: Config,
  { httpAgent, httpsAgent }: GuardedAgents,
): Promise<AxiosResponse> {
  const { url, method, headers, maxContentLength = -1 } = config;
  const isSecure = url!.startsWith('https:');
  const signal = config.signal as AbortSignal | undefined;
  return new Promise((resolve, reject) => {
    const request = (isSecure ? https : http).request(url!, {
      method: method!.toUpperCase(),
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
      if (isHead(config) && !hasNoBody(answer)) {
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

function isHead({ method }: Config): boolean {
  return method?.toUpperCase() === 'HEAD';
}

/** Whether the server itself says that nothing follows the head of its answer. */
function hasNoBody({ statusCode, headers }: IncomingMessage): boolean {
  return statusCode === 204 || headers['content-length'] === '0';
}
