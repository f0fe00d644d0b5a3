import type { HttpService } from '@nestjs/axios';
import type { AxiosAdapter, AxiosRequestConfig, CancelToken } from 'axios';
import type { EgressPolicy } from '../egress/egress-policy.js';
import {
  createGuardedAgents,
  type EgressTlsOptions,
  type GuardedAgents,
} from '../egress/guarded-agent.js';
import { PublisherLog } from '../signing/publisher-log.js';
import type { NoAnswer, ReceiverAnswer } from './attempt-result.js';
import { answerOfError, readAnswer } from './read-answer.js';
import type { ComposedRequest } from './request.composer.js';
import {
  bypassWarning,
  createHttpService,
  DELIVERY_SETTINGS,
  type DeliverySettings,
  isUnchanged,
  sendByNode,
  UNREADABLE,
} from './axios-client.js';

/** Options of the {@link HttpTransport}. */
export interface TransportOptions {
  readonly egress: EgressPolicy;
  readonly tls: EgressTlsOptions | undefined;
}

/** What requests are sent with. */
interface HttpClient {
  readonly http: HttpService;
  readonly adapter: AxiosAdapter | 'http';
  readonly cancelToken?: CancelToken;
}

const anyStatus = (): boolean => true;

/**
 * Sends requests through HttpService, and below it through node:http and the egress guard. axios is loaded for the first request.
 *
 * If an interceptor has changed one of the settings, for example to use a proxy, the HTTP adapter of axios sends the request.
 */
export class HttpTransport {
  private readonly log = new PublisherLog();
  /** Keep connections for further requests. */
  private readonly pool: GuardedAgents;
  /**
   * For requests that axios sends. They keep no connections: axios would keep that of a HEAD, and a late body of its answer
   * would be read as the answer to the next request.
   */
  private readonly agents: GuardedAgents;
  private readonly settings: DeliverySettings;
  private client: Promise<HttpClient> | undefined;

  /** @param given - the application's HttpService; by default, one is created */
  constructor(
    { egress, tls }: TransportOptions,
    private readonly given: HttpService | undefined,
  ) {
    this.pool = createGuardedAgents(egress, { tls });
    this.agents = createGuardedAgents(egress, { tls, keepAlive: false });
    const { httpAgent, httpsAgent } = this.agents;
    this.settings = { ...DELIVERY_SETTINGS, httpAgent, httpsAgent };
  }

  /**
   * Sends one request.
   *
   * @param signal - ends it; its reason becomes the failure
   * @returns the answer, or why there is none
   * @throws if axios cannot be loaded
   */
  async send(request: ComposedRequest, signal: AbortSignal): Promise<ReceiverAnswer | NoAnswer> {
    const client = await (this.client ??= this.load());
    if (signal.aborted) return { reason: signal.reason as 'timeout' | 'aborted' };
    return new Promise((resolve) => {
      try {
        const config = this.configOf(request, client, signal);
        const subscription = client.http.request<unknown>(config).subscribe({
          next: (response) => {
            this.warnOfBypass(config, response);
            resolve(readAnswer(response) ?? this.unreadable());
          },
          error: (error: unknown) => {
            this.warnOfBypass(config, error);
            resolve(answerOfError(error));
          },
          complete: () => resolve({ reason: 'network' }),
        });
        signal.addEventListener('abort', () => {
          resolve({ reason: signal.reason as 'timeout' | 'aborted' });
          try {
            subscription.unsubscribe();
          } catch {
            // An interceptor's teardown threw; rethrown from a timer, it would end the process.
          }
        });
      } catch (error) {
        resolve(answerOfError(error));
      }
    });
  }

  /** Whether the application has set its own axios adapter, whose connections the egress guard cannot check. */
  get usesForeignAdapter(): boolean {
    return typeof this.defaults?.adapter === 'function';
  }

  /** Headers that HttpService adds to every request, and so to ours. */
  inheritedHeaders(): Record<string, string> {
    const { common, head } = (this.defaults?.headers ?? {}) as Partial<Record<string, object>>;
    return Object.fromEntries(
      Object.entries({ ...common, ...head }).filter(
        (entry): entry is [string, string] => typeof entry[1] === 'string',
      ),
    );
  }

  /** Closes the connections. */
  close(): void {
    this.pool.destroy();
    this.agents.destroy();
  }

  private async load(): Promise<HttpClient> {
    const { given } = this;
    if (given !== undefined && this.defaults === undefined) {
      // A fake; axios may be missing.
      return { http: given, adapter: 'http' };
    }
    const axios = await import('axios');
    const stock = axios.getAdapter('http');
    return {
      http: given ?? (await createHttpService()),
      adapter: async (config) =>
        isUnchanged(config, this.settings) ? sendByNode(axios, config, this.pool) : stock(config),
      // Without one, HttpService creates and cancels a token for every request. Attempts are cancelled by their signal.
      cancelToken: new axios.default.CancelToken(() => undefined),
    };
  }

  private configOf(
    { method, url, headers, body }: ComposedRequest,
    { adapter, cancelToken }: HttpClient,
    signal: AbortSignal,
  ): AxiosRequestConfig {
    return {
      ...(this.settings as object),
      method,
      url,
      headers,
      signal,
      cancelToken,
      transformRequest: [],
      // Parsing JSON would fail on an empty 204, and an acknowledged event would be sent again.
      transformResponse: [],
      validateStatus: anyStatus,
      maxBodyLength: Infinity,
      // Without a body, `data` must be absent: axios would send '' as `""` and null as `null`.
      ...(body !== undefined && { data: body }),
      ...(!this.usesForeignAdapter && { adapter }),
    };
  }

  /** The application's defaults; a fake HttpService may have none. */
  private get defaults(): HttpService['axiosRef']['defaults'] | undefined {
    return (this.given as Partial<HttpService> | undefined)?.axiosRef?.defaults;
  }

  private warnOfBypass(asked: AxiosRequestConfig, outcome: unknown): void {
    const warning = bypassWarning(asked, outcome);
    if (warning !== undefined) this.log.once('warn', 'bypass', () => warning);
  }

  private unreadable(): NoAnswer {
    this.log.once('warn', 'unreadable', () => UNREADABLE);
    return { reason: 'malformed_response', isUnreadable: true };
  }
}
