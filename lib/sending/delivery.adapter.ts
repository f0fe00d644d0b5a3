import type { AxiosAdapter, AxiosResponse, InternalAxiosRequestConfig } from 'axios';
import http, { type ClientRequest, type IncomingMessage } from 'node:http';
import https from 'node:https';
import type { Duplex } from 'node:stream';
import type { Dispatcher } from 'undici';
import type { EgressPolicy } from '../egress/egress-policy.js';
import type { EgressTlsOptions, GuardedAgents } from '../egress/guarded-agent.js';
import { guardConnector } from '../egress/guarded-connector.js';
import { unprinted } from '../options/unprinted.js';
import { RecentEntries } from '../queue/recent-entries.js';

type Config = InternalAxiosRequestConfig;
type Axios = typeof import('axios');

/**
 * An axios adapter for the requests of deliveries: HEAD, or POST with bytes, and a small answer in memory. It takes a third of
 * the CPU of the built-in one (benchmark `send`).
 *
 * POST is sent by undici if it is installed. HEAD is always sent by node:http: undici closes the connection after it, and if
 * told not to, a server that answers HEAD with a body would corrupt the next exchange. Requests with settings of an
 * interceptor that neither supports use the built-in adapter.
 */
export class DeliveryAdapter {
  private readonly stock: AxiosAdapter;
  /** Origins that undici cannot talk to; an evicted one is detected again, at the cost of an attempt. */
  private readonly unfit = new RecentEntries<true>(MAX_REMEMBERED);
  private readonly addresses = new RecentEntries<Address>(MAX_REMEMBERED);

  private constructor(
    private readonly agents: GuardedAgents,
    private readonly axios: Axios,
    private readonly undici: GuardedUndici | undefined,
  ) {
    this.stock = axios.default.getAdapter('http');
  }

  static async load(
    policy: EgressPolicy,
    { agents, tls }: { readonly agents: GuardedAgents; readonly tls: EgressTlsOptions | undefined },
  ): Promise<DeliveryAdapter> {
    return new DeliveryAdapter(agents, await import('axios'), await loadUndici(policy, tls));
  }

  /** As axios calls it. */
  readonly adapt: AxiosAdapter = (config) =>
    new Promise<AxiosResponse>((resolve, reject) => {
      const method = config.method?.toUpperCase();
      if (!isPlain(config, method, this.agents)) return resolve(this.stock(config));
      const address = this.addressOf(config.url!);
      if (!address.origin.startsWith('http')) return resolve(this.stock(config));
      if (config.signal?.aborted) throw new this.axios.CanceledError(undefined, config);
      const sides = { config, axios: this.axios, resolve, reject };
      if (method === 'POST' && this.undici !== undefined && !this.unfit.get(address.origin)) {
        const onUnfit = (): void => this.unfit.set(address.origin, true);
        new UndiciExchange(sides, onUnfit).start(this.undici, address);
      } else {
        new NodeExchange(sides).start(this.agents, address, method!);
      }
    });

  /** Closes the connections of undici; those of node:http belong to the agents. */
  close(): void {
    void this.undici?.dispatcher.destroy().catch(() => {});
  }

  private addressOf(url: string): Address {
    let address = this.addresses.get(url);
    if (address === undefined) this.addresses.set(url, (address = parseAddress(url)));
    return address;
  }
}

/** A URL as the clients want it. */
interface Address {
  readonly origin: string;
  readonly secure: boolean;
  readonly host: string;
  readonly hostname: string;
  readonly port: string;
  readonly path: string;
}

/** URLs and origins that are cached: an endpoint uses the same ones for every event. */
const MAX_REMEMBERED = 1_000;

function parseAddress(url: string): Address {
  const { origin, protocol, host, hostname, port, pathname, search } = new URL(url);
  return {
    origin,
    secure: protocol === 'https:',
    host,
    hostname: hostname.startsWith('[') ? hostname.slice(1, -1) : hostname,
    port,
    path: `${pathname}${search}`,
  };
}

/** Whether an exchange supports all settings of the request. */
function isPlain(
  config: Config,
  method: string | undefined,
  { httpAgent, httpsAgent }: GuardedAgents,
): boolean {
  const { data } = config as { readonly data?: unknown };
  return (
    (method === 'POST'
      ? data === undefined || Buffer.isBuffer(data)
      : method === 'HEAD' && !data) &&
    config.responseType === 'arraybuffer' &&
    config.decompress === false &&
    config.maxRedirects === 0 &&
    config.proxy === false &&
    config.httpAgent === httpAgent &&
    config.httpsAgent === httpsAgent &&
    !config.timeout &&
    !config.baseURL &&
    !config.insecureHTTPParser &&
    ((config as { httpVersion?: unknown }).httpVersion ?? 1) === 1 &&
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

/** The request of an exchange, and its two outcomes. */
interface Sides {
  readonly config: Config;
  readonly axios: Axios;
  readonly resolve: (response: AxiosResponse) => void;
  readonly reject: (error: Error) => void;
}

/** One request and its answer, with the errors of axios. */
abstract class Exchange {
  private chunks: Buffer[] | undefined;
  private length = 0;
  private readonly onAbort: () => void;

  constructor(protected readonly sides: Sides) {
    const { config, axios } = sides;
    this.onAbort = () => {
      const canceled = new axios.CanceledError(undefined, config);
      this.fail(canceled);
      this.cancel(canceled);
    };
    config.signal?.addEventListener?.('abort', this.onAbort);
  }

  protected abstract cancel(reason: Error): void;

  /** Keeps a part of the answer's body. */
  protected keep(chunk: Buffer): void {
    const { config, axios } = this.sides;
    const { maxContentLength = -1 } = config;
    this.length += chunk.length;
    if (maxContentLength < 0 || this.length <= maxContentLength) {
      (this.chunks ??= []).push(chunk);
      return;
    }
    const message = `maxContentLength size of ${maxContentLength} exceeded`;
    const error = new axios.AxiosError(message, axios.AxiosError.ERR_BAD_RESPONSE, config);
    this.fail(error);
    this.cancel(error);
  }

  protected finish(
    status: number,
    statusText: string,
    headers: AxiosResponse['headers'],
    request: unknown,
  ): void {
    this.settle();
    const { chunks, sides, length } = this;
    const data =
      chunks === undefined
        ? NOTHING
        : chunks.length === 1
          ? chunks[0]!
          : Buffer.concat(chunks, length);
    sides.resolve({ status, statusText, headers, data, config: sides.config, request });
  }

  protected failWith(error: NodeJS.ErrnoException, request: unknown): void {
    const { config, axios } = this.sides;
    const code = NODE_CODES[error.code ?? ''] ?? error.code;
    this.fail(axios.AxiosError.from(error, code, config, request));
  }

  private fail(error: Error): void {
    this.settle();
    this.sides.reject(error);
  }

  private settle(): void {
    this.sides.config.signal?.removeEventListener?.('abort', this.onAbort);
  }
}

const NOTHING = Buffer.alloc(0);

/** What Node, and so axios, calls the errors of undici. */
const NODE_CODES: Readonly<Record<string, string>> = {
  UND_ERR_SOCKET: 'ECONNRESET',
  UND_ERR_HEADERS_OVERFLOW: 'HPE_HEADER_OVERFLOW',
};

class NodeExchange extends Exchange {
  private request: ClientRequest | undefined;

  start(
    { httpAgent, httpsAgent }: GuardedAgents,
    { secure, host, hostname, port, path }: Address,
    method: string,
  ): void {
    const { data, headers } = this.sides.config as Config & { readonly data?: Buffer };
    const request = (secure ? https : http).request({
      agent: secure ? httpsAgent : httpAgent,
      hostname,
      port,
      path,
      method,
      headers: headersFor(headers, host),
    });
    this.request = request;
    request.on('response', (answer) => this.read(answer, request));
    request.on('error', (error) => this.failWith(error, request));
    if (data === undefined) request.end();
    // As latin1 it is written together with the head; the octets are the same.
    else if (data.length <= MAX_JOINED) request.end(data.toString('latin1'), 'latin1');
    else request.end(data);
  }

  protected override cancel(): void {
    this.request?.destroy();
  }

  private read(answer: IncomingMessage, request: ClientRequest): void {
    answer.on('data', (chunk: Buffer) => this.keep(chunk));
    answer.on('error', (error) => this.failWith(error, request));
    answer.on('end', () =>
      this.finish(answer.statusCode!, answer.statusMessage!, answer.headers as never, request),
    );
  }
}

/** Bytes of a body up to which copying it costs less than a second write. */
const MAX_JOINED = 16_384;

class UndiciExchange extends Exchange implements Dispatcher.DispatchHandler {
  private controller: Dispatcher.DispatchController | undefined;
  private giveUpOpening: (() => void) | undefined;
  private status = 0;
  private statusText = '';
  private headers: AxiosResponse['headers'] = {};

  constructor(
    sides: Sides,
    /** Called if undici cannot talk to the server. */
    private readonly onUnfit: () => void,
  ) {
    super(sides);
  }

  start({ dispatcher, opened }: GuardedUndici, { origin, path }: Address): void {
    const { data, headers } = this.sides.config as Config & { readonly data?: Buffer };
    const request: Dispatcher.DispatchOptions = {
      origin,
      path,
      method: 'POST',
      headers: headerList(headers),
      body: data ?? null,
    };
    this.giveUpOpening = opened.by(() => void dispatcher.dispatch(request, this));
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.controller = controller;
    const { config, axios } = this.sides;
    if (config.signal?.aborted) controller.abort(new axios.CanceledError(undefined, config));
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
    statusText = '',
  ): void {
    // The last one is the answer; those before it are 1xx.
    this.status = status;
    this.statusText = statusText;
    this.headers = headers as never;
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.keep(chunk);
  }

  onResponseEnd(): void {
    this.finish(this.status, this.statusText, this.headers, null);
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    if (isUnexpectedContinue(error)) this.onUnfit();
    this.failWith(error, null);
  }

  protected override cancel(reason: Error): void {
    if (this.controller === undefined) this.giveUpOpening?.();
    else this.controller.abort(reason);
  }
}

/** undici closes the connection on an unexpected `100 Continue`, which some old servers send. */
function isUnexpectedContinue({ message }: Error): boolean {
  return message === 'bad response';
}

/**
 * Headers for node:http.
 *
 * An object and no list: instrumentations that wrap `http.request`, such as that of OpenTelemetry, copy the headers as an object.
 */
function headersFor(headers: Config['headers'], host: string): Record<string, string> {
  const given: Record<string, string> = {};
  let hasHost = false;
  eachHeader(headers, (name, value) => {
    hasHost ||= name.length === 4 && name.toLowerCase() === 'host';
    given[name] = value;
  });
  if (!hasHost) given['Host'] = host;
  return given;
}

/** Names and values in turn. */
function headerList(headers: Config['headers']): string[] {
  const list: string[] = [];
  eachHeader(headers, (name, value) => list.push(name, value));
  return list;
}

/** Headers that an interceptor has cleared are not sent. */
function eachHeader(headers: Config['headers'], use: (name: string, value: string) => void): void {
  for (const name of Object.keys(headers)) {
    const value: unknown = headers[name];
    if (value === null || value === undefined || value === false) continue;
    use(name, `${value as string | number}`);
  }
}

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
   * @returns a function that closes the connection if it is open; `undefined` if none was opened
   */
  by(dispatch: () => void): (() => void) | undefined {
    this.opened = undefined;
    dispatch();
    const opened = this.opened as Duplex | undefined;
    if (opened === undefined) return undefined;
    this.opened = undefined;
    // With an error, since undici would otherwise not notice and keep waiting.
    return () => opened.destroy(new Error('The attempt was aborted.'));
  }
}

/** undici behind the egress guard. */
interface GuardedUndici {
  readonly dispatcher: Dispatcher;
  readonly opened: OpenedConnection;
}

/**
 * Loads undici if the application has installed it.
 *
 * @returns `undefined` if it is missing, too old, or does not support this version of Node
 */
async function loadUndici(
  policy: EgressPolicy,
  tls: EgressTlsOptions | undefined,
): Promise<GuardedUndici | undefined> {
  try {
    const undici = await import('undici');
    // Only version 7 and later export it: their handlers get a controller, which an exchange needs. The version
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
    return { dispatcher: unprinted(dispatcher, '[guarded undici Agent]'), opened };
  } catch {
    return undefined;
  }
}
