import type { AxiosAdapter, AxiosResponse, InternalAxiosRequestConfig } from 'axios';
import type { Duplex } from 'node:stream';
import type { Dispatcher } from 'undici';
import type { EgressPolicy } from '../egress/egress-policy.js';
import type { EgressTlsOptions, GuardedAgents } from '../egress/guarded-agent.js';
import { guardConnector } from '../egress/guarded-connector.js';
import { unprinted } from '../options/unprinted.js';
import { RecentEntries } from '../queue/recent-entries.js';

/** A function that opens connections for undici. */
type Connect<Arguments extends readonly unknown[]> = (...args: Arguments) => unknown;

/**
 * Tracks the connection that a request opens. undici releases one only when it is established or has failed: a connection to a
 * server that never completes the TLS handshake would stay open, with its request, long after the attempt has ended.
 */
class OpenedConnection {
  private opened: unknown;

  /** Wraps a connector. */
  watch<Arguments extends readonly unknown[]>(connect: Connect<Arguments>): Connect<Arguments> {
    return (...args) => (this.opened = connect(...args));
  }

  /**
   * Runs a dispatch, within which undici may open a connection.
   *
   * @returns a function that closes the connection; it does nothing if none was opened, or if it is closed
   */
  by(dispatch: () => void): () => void {
    this.opened = undefined;
    dispatch();
    const opened = this.opened as Duplex | undefined;
    this.opened = undefined;
    // With an error, since undici would otherwise not notice and keep waiting.
    return () => opened?.destroy(new Error('The attempt was aborted.'));
  }
}

type Config = InternalAxiosRequestConfig;

/**
 * An axios adapter over undici's dispatch: a third of the CPU of the built-in one (benchmark `send`).
 *
 * It handles the requests of deliveries: POST, bytes, the answer in memory. Everything else uses the built-in adapter: HEAD
 * (after which undici closes the connection), and settings of an interceptor that undici does not support.
 */
async function undiciAdapter(
  dispatcher: Dispatcher,
  agents: GuardedAgents,
  opened: OpenedConnection,
): Promise<AxiosAdapter> {
  const axios = await import('axios');
  const stock = axios.default.getAdapter('http');
  /** Origins that need the built-in adapter; an evicted one is detected again, at the cost of an attempt. */
  const unfit = new RecentEntries<true>(MAX_REMEMBERED);
  const addresses = new RecentEntries<Address>(MAX_REMEMBERED);
  return async (config) => {
    if (!isPlain(config, agents)) return stock(config);
    const url = config.url!;
    let address = addresses.get(url);
    if (address === undefined) addresses.set(url, (address = addressOf(url)));
    if (unfit.get(address.origin)) return stock(config);
    try {
      return await exchange({ dispatcher, opened, address }, config, axios);
    } catch (error) {
      if (isUnexpectedContinue(error)) unfit.set(address.origin, true);
      throw error;
    }
  };
}

/** A URL as undici wants it. */
interface Address {
  readonly origin: string;
  readonly path: string;
}

/** URLs and origins that are cached: an endpoint uses the same ones for every event. */
const MAX_REMEMBERED = 1_000;

function addressOf(url: string): Address {
  const { origin, pathname, search } = new URL(url);
  return { origin, path: `${pathname}${search}` };
}

/** undici closes the connection on an unexpected `100 Continue`, which some old servers send. */
function isUnexpectedContinue(error: unknown): boolean {
  const { message } = ((error as Error).cause ?? {}) as { message?: unknown };
  return message === 'bad response';
}

/** Whether {@link exchange} supports all settings of the request. */
function isPlain(config: Config, { httpAgent, httpsAgent }: GuardedAgents): boolean {
  return (
    config.method?.toUpperCase() === 'POST' &&
    (config.data === undefined || Buffer.isBuffer(config.data)) &&
    config.responseType === 'arraybuffer' &&
    config.decompress === false &&
    config.maxRedirects === 0 &&
    config.proxy === false &&
    config.httpAgent === httpAgent &&
    config.httpsAgent === httpsAgent &&
    !config.timeout &&
    !config.baseURL &&
    UNSUPPORTED.every((name) => config[name] === null || config[name] === undefined)
  );
}

const UNSUPPORTED = [
  'auth',
  'params',
  'paramsSerializer',
  'socketPath',
  'transport',
  'lookup',
  'family',
  'beforeRedirect',
  'maxRate',
  'onUploadProgress',
  'onDownloadProgress',
  'http2Options',
] as const satisfies readonly (keyof Config | 'http2Options')[];

function exchange(
  {
    dispatcher,
    opened,
    address,
  }: {
    readonly dispatcher: Dispatcher;
    readonly opened: OpenedConnection;
    readonly address: Address;
  },
  config: Config,
  { AxiosError, AxiosHeaders, CanceledError }: typeof import('axios'),
): Promise<AxiosResponse> {
  return new Promise((resolve, reject) => {
    const { signal, maxContentLength = -1 } = config;
    const chunks: Buffer[] = [];
    let length = 0;
    let head: Pick<AxiosResponse, 'status' | 'statusText' | 'headers'> | undefined;
    let controller: Dispatcher.DispatchController | undefined;
    let giveUpOpening = (): void => {};
    const settle = (): void => signal?.removeEventListener?.('abort', onAbort);
    const fail = (error: Error): void => {
      settle();
      reject(error);
    };
    const onAbort = (): void => {
      const canceled = new CanceledError(undefined, config);
      fail(canceled);
      if (controller === undefined) giveUpOpening();
      else controller.abort(canceled);
    };
    const handler: Dispatcher.DispatchHandler = {
      onRequestStart(given) {
        controller = given;
        if (signal?.aborted) given.abort(new CanceledError(undefined, config));
      },
      onResponseStart(_, status, headers, statusText = '') {
        // The last one is the answer; those before it are 1xx.
        head = { status, statusText, headers: new AxiosHeaders(headers as never) };
      },
      onResponseData(given, chunk) {
        length += chunk.length;
        if (maxContentLength >= 0 && length > maxContentLength) {
          const message = `maxContentLength size of ${maxContentLength} exceeded`;
          const error = new AxiosError(message, AxiosError.ERR_BAD_RESPONSE, config);
          fail(error);
          return given.abort(error);
        }
        chunks.push(chunk);
      },
      onResponseEnd() {
        settle();
        const data = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks, length);
        resolve({ ...head!, data, config, request: null });
      },
      onResponseError(_, error) {
        const { code } = error as NodeJS.ErrnoException;
        fail(AxiosError.from(error, code, config, null));
      },
    };
    signal?.addEventListener?.('abort', onAbort);
    const request: Dispatcher.DispatchOptions = {
      ...address,
      method: 'POST',
      headers: plainHeaders(config.headers),
      body: (config.data as Buffer | undefined) ?? null,
    };
    giveUpOpening = opened.by(() => void dispatcher.dispatch(request, handler));
  });
}

/** Headers that an interceptor has cleared are not sent. */
function plainHeaders(headers: Config['headers']): Record<string, string> {
  const plain: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value !== null && value !== undefined && value !== false) plain[name] = String(value);
  }
  return plain;
}

/** Sends POST requests of HttpService over undici, with the egress guard inside. */
export interface UndiciTransport {
  readonly adapter: AxiosAdapter;
  /** Closes all connections. */
  close(): void;
}

/**
 * Loads undici if the application has installed it.
 *
 * @returns `undefined` if it is missing, too old, or does not support this version of Node
 */
export async function loadUndici(
  policy: EgressPolicy,
  { agents, tls }: { readonly agents: GuardedAgents; readonly tls: EgressTlsOptions | undefined },
): Promise<UndiciTransport | undefined> {
  try {
    const undici = await import('undici');
    // Only version 7 and later export it: their handlers get a controller, which the adapter needs. The version
    // itself could only be read with import.meta, which Jest cannot transform to CommonJS.
    if (!('cacheStores' in undici)) return undefined;
    const { Agent, buildConnector } = undici;
    const opened = new OpenedConnection();
    const connect = guardConnector(policy, (settings) => buildConnector({ ...settings }), { tls });
    const dispatcher = new Agent({
      connect: opened.watch(connect),
      // One request at a time on a connection, so that a slow answer does not delay others.
      pipelining: 1,
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    // Its clients hold the requests, and so the tokens, that they carry.
    const agent = unprinted(dispatcher, '[guarded undici Agent]');
    return {
      adapter: await undiciAdapter(agent, agents, opened),
      close: () => void agent.destroy().catch(() => {}),
    };
  } catch {
    return undefined;
  }
}
