import type { HttpService } from '@nestjs/axios';
import type { AxiosRequestConfig } from 'axios';
import http from 'node:http';
import { setImmediate } from 'node:timers';
import { errorName } from '../errors/webhook.error.js';
import { PublisherLog } from '../signing/publisher-log.js';
import {
  answerOfError,
  isAcknowledged,
  type NoAnswer,
  readAnswer,
  type ReceiverAnswer,
} from './attempt-result.js';
import {
  bypassWarning,
  type Connections,
  IdentityConnections,
  isUnchanged,
  thrownWarning,
  type TransportOptions,
} from './connections.js';
import { createHttpService, sendByNode } from './delivery-axios.js';
import type { ClientCertificate } from './endpoint-credentials.js';
import { RESERVED_HEADERS } from './endpoint.js';
import type { ComposedRequest } from './request.composer.js';

interface HttpClient {
  readonly http: HttpService;
  /** How requests over some connections are sent. */
  readonly sendingOver: (
    connections: Connections,
  ) => Pick<AxiosRequestConfig, 'adapter' | 'cancelToken'>;
}

/** Set for each request. With a place in advance, HttpService copies the settings in 0.2 µs instead of 12. */
const OF_REQUEST = {
  method: undefined,
  url: undefined,
  headers: undefined,
  signal: undefined,
  // Without a body it stays undefined: axios would send '' as `""` and null as `null`.
  data: undefined,
};

/** Settings that axios may copy; the others decide how a request is sent. */
const ANSWER_SETTINGS = {
  transformRequest: [],
  // Parsing JSON would fail on an empty 204, and an acknowledged event would be sent again.
  transformResponse: [],
  maxBodyLength: Infinity,
};

/**
 * Sends requests through HttpService, and below it through node:http and the egress guard. axios is loaded for the first request.
 *
 * If an interceptor has changed a setting other than the agents, for example to use a proxy, the HTTP adapter of axios sends the request.
 */
export class HttpTransport {
  private readonly log = new PublisherLog();
  private readonly connections: IdentityConnections;
  private client: Promise<HttpClient> | undefined;

  /** @param given - the application's HttpService; by default, one is created */
  constructor(
    options: TransportOptions,
    private readonly given: HttpService | undefined,
  ) {
    this.connections = new IdentityConnections(options);
  }

  /**
   * Loads axios, once.
   *
   * @throws if it cannot be loaded
   */
  async load(): Promise<HttpClient> {
    return (this.client ??= this.createClient().catch((error: unknown) => {
      this.client = undefined;
      throw error;
    }));
  }

  /**
   * @param signal - ends it; its reason becomes the failure
   * @param certificate - of the endpoint; default: that of the publisher, if it has one
   * @returns the answer, or why there is none
   * @throws if axios cannot be loaded
   */
  async send(
    request: ComposedRequest,
    signal: AbortSignal,
    certificate?: ClientCertificate,
  ): Promise<ReceiverAnswer | NoAnswer> {
    const client = await this.load();
    if (signal.aborted) return ended(signal);
    const connections = this.connections.of(certificate);
    connections.requests++;
    try {
      return await this.sendOver(connections, client, request, signal);
    } finally {
      connections.requests--;
    }
  }

  private async sendOver(
    connections: Connections,
    client: HttpClient,
    request: ComposedRequest,
    signal: AbortSignal,
  ): Promise<ReceiverAnswer | NoAnswer> {
    return new Promise((resolve) => {
      let hasAnswer = false;
      try {
        const config = this.configOf(request, client, connections, signal);
        const received = recordReceived(config, signal);
        const end = (response: unknown, answer: ReceiverAnswer | NoAnswer): void => {
          const sent = clientRequestOf(response);
          if (isAcknowledged(request.method, answer)) {
            const isComplete = received.isSent ?? isSent(sent, signal);
            void isComplete.then((all) => resolve(all ? answer : unsent(signal)));
          } else {
            // A receiver that refuses the event needs no more of it.
            if (sent?.writableFinished === false) sent.destroy();
            resolve(answer);
          }
        };
        const subscription = client.http.request<unknown>(config).subscribe({
          next: (response) => {
            this.warnOfBypass(config, response);
            hasAnswer = true;
            // An interceptor may return something else, such as `response.data`.
            const last = readAnswer(response) === undefined ? received.response : response;
            end(last, readAnswer(last) ?? { reason: 'malformed_response' });
          },
          error: (error: unknown) => {
            if (signal.aborted) return;
            this.warnOfBypass(config, error);
            end(received.response, this.answerBehind(error, received));
          },
          complete: () => hasAnswer || resolve({ reason: 'network' }),
        });
        const abandon = (): void => {
          const answer = answerOfError(received);
          const isRefused = answer.statusCode !== undefined;
          resolve(isRefused ? answer : ended(signal));
          try {
            subscription.unsubscribe();
          } catch {
            // An interceptor's teardown threw; rethrown from a timer, it would end the process.
          }
        };
        // Once the adapter has returned a refusal whose body has not ended.
        signal.addEventListener('abort', () => setImmediate(abandon));
      } catch (error) {
        resolve(answerOfError(error));
      }
    });
  }

  /** Whether the application has set its own axios adapter, whose connections the egress guard cannot check. */
  get usesForeignAdapter(): boolean {
    return typeof this.defaults?.adapter === 'function';
  }

  /** Headers that HttpService adds to a HEAD. */
  inheritedHeaders(): Record<string, string> {
    return Object.fromEntries(
      this.defaultHeaders('HEAD').filter(([name]) => !RESERVED_HEADERS.has(name.toLowerCase())),
    );
  }

  close(): void {
    this.connections.close();
  }

  private async createClient(): Promise<HttpClient> {
    const { given } = this;
    if (given !== undefined && this.defaults === undefined) {
      // A fake; axios may be missing.
      return { http: given, sendingOver: () => ({ adapter: 'http' }) };
    }
    const axios = await import('axios');
    const stock = axios.getAdapter('http');
    // Attempts are cancelled by their signal. Without a token, HttpService creates one for every request, which costs a seventh of an attempt.
    const cancelToken = new axios.default.CancelToken(() => undefined);
    return {
      http: given ?? (await createHttpService()),
      sendingOver: (connections) => ({
        cancelToken,
        adapter: async (config) =>
          isUnchanged(config, connections.settings)
            ? sendByNode(axios, config, connections)
            : stock(config),
      }),
    };
  }

  private configOf(
    request: ComposedRequest,
    client: HttpClient,
    connections: Connections,
    signal: AbortSignal,
  ): AxiosRequestConfig {
    const { method, url, body } = request;
    const headers = this.headersOf(request);
    const shared = (connections.shared ??= {
      ...OF_REQUEST,
      ...(connections.settings as object),
      ...ANSWER_SETTINGS,
      ...client.sendingOver(connections),
    });
    const adapter = this.usesForeignAdapter ? undefined : shared.adapter;
    return { ...shared, method, url, headers, signal, data: body, adapter };
  }

  /** With `null`, for which axios sends nothing, instead of each default header that frames or authenticates a request. */
  private headersOf({ method, headers }: ComposedRequest): Readonly<Record<string, string | null>> {
    const reserved = this.defaultHeaders(method)
      .map(([name]) => name.toLowerCase())
      .filter((name) => RESERVED_HEADERS.has(name));
    if (reserved.length === 0) return headers;
    const own = new Set(Object.keys(headers).map((name) => name.toLowerCase()));
    const withheld = reserved.filter((name) => !own.has(name));
    return { ...headers, ...Object.fromEntries(withheld.map((name) => [name, null])) };
  }

  /** The application's default headers, in the order in which axios merges them. They may change between two requests. */
  private defaultHeaders(method: 'HEAD' | 'POST'): [name: string, value: string][] {
    const all = (this.defaults?.headers ?? {}) as Partial<Record<string, string | object>>;
    const found: [string, string][] = [];
    for (const headers of [all['common'], all[method.toLowerCase()], all]) {
      for (const [name, value] of Object.entries(headers ?? {}) as [string, typeof headers][]) {
        // An object has the headers of a method.
        if (value === undefined || (typeof value === 'object' && !Array.isArray(value))) continue;
        found.push([name, String(value)]);
      }
    }
    return found;
  }

  /** The application's defaults; a fake HttpService may have none. */
  private get defaults(): HttpService['axiosRef']['defaults'] | undefined {
    return (this.given as Partial<HttpService> | undefined)?.axiosRef?.defaults;
  }

  private warnOfBypass(asked: AxiosRequestConfig, outcome: unknown): void {
    const warning = bypassWarning(asked, outcome);
    if (warning !== undefined) this.log.once('warn', 'bypass', () => warning);
  }

  /** What the adapter received counts, whatever an interceptor has thrown. */
  private answerBehind(error: unknown, received: Received): ReceiverAnswer | NoAnswer {
    const answer = readAnswer(received.response) ?? answerOfError(received.error ?? error);
    const wasReceived = received.response !== undefined || received.error !== undefined;
    if (!wasReceived && answer.statusCode === undefined && answer.reason === 'network') {
      this.log.once('warn', 'thrown', () => thrownWarning(errorName(error)));
    }
    return answer;
  }
}

function ended(signal: AbortSignal): NoAnswer {
  return { reason: signal.reason as 'timeout' | 'aborted' };
}

function unsent(signal: AbortSignal): NoAnswer {
  return signal.aborted ? ended(signal) : { reason: 'connection_reset' };
}

/** What the adapter returned or threw, before interceptors. */
interface Received {
  response?: unknown;
  error?: unknown;
  /** Whether all of the request was sent. */
  isSent?: Promise<boolean> | undefined;
}

/** Records the result of the last request that is sent with these settings; an interceptor may repeat it. */
function recordReceived(config: AxiosRequestConfig, signal: AbortSignal): Received {
  const received: Received = {};
  const { adapter } = config;
  if (typeof adapter !== 'function') return received;
  config.adapter = async (sent) => {
    received.response = received.error = received.isSent = undefined;
    try {
      const response = await adapter(sent);
      received.response = response;
      received.isSent = isSent(clientRequestOf(response), signal);
      return response;
    } catch (error) {
      received.error = error;
      throw error;
    }
  };
  return received;
}

/**
 * Whether the whole body is sent: a receiver may acknowledge an event before it has read all of it. Without the signal, one that never
 * reads on would keep the connection and the body for good.
 */
async function isSent(
  request: http.ClientRequest | undefined,
  signal: AbortSignal,
): Promise<boolean> {
  if (request === undefined || request.writableFinished) return true;
  if (request.destroyed) return false;
  return new Promise((resolve) => {
    // Node emits it, and changes `writableFinished`, also if the connection has ended before.
    request.once('finish', () => {
      const { destroyed, errored } = request.socket!;
      resolve(!destroyed && !errored);
    });
    request.once('close', () => resolve(false));
    signal.addEventListener('abort', () => request.destroy());
  });
}

function clientRequestOf(response: unknown): http.ClientRequest | undefined {
  try {
    const { request } = response as { readonly request?: unknown };
    return request instanceof http.ClientRequest ? request : undefined;
  } catch {
    // Reading what an interceptor or a fake returns may throw.
    return undefined;
  }
}
