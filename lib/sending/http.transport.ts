import type { HttpService } from '@nestjs/axios';
import { createHash } from 'node:crypto';
import type { AxiosAdapter, AxiosRequestConfig, CancelToken } from 'axios';
import type { EgressPolicy } from '../egress/egress-policy.js';
import type { EgressProxy } from '../egress/egress-proxy.js';
import {
  createGuardedAgents,
  type EgressTlsOptions,
  type GuardedAgents,
} from '../egress/guarded-agent.js';
import { PublisherLog } from '../signing/publisher-log.js';
import type { NoAnswer, ReceiverAnswer } from './attempt-result.js';
import type { ClientCertificate } from './endpoint-credentials.js';
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
  readonly proxy: EgressProxy | undefined;
}

/** What requests are sent with. */
interface HttpClient {
  readonly http: HttpService;
  readonly adapterOf: (connections: Connections) => AxiosAdapter | 'http';
  readonly cancelToken?: CancelToken;
}

/** Client certificates whose connections are kept; the least recently used one without a request is closed. */
const MAX_IDENTITIES = 200;

/** The connections of one identity: that of the publisher, or of a client certificate. */
class Connections {
  /** Keep connections for further requests. */
  readonly pool: GuardedAgents;
  readonly settings: DeliverySettings;
  /** Requests that are under way. */
  requests = 0;
  adapter: AxiosAdapter | undefined;
  /**
   * For requests that axios sends. They keep no connections: axios would keep that of a HEAD, and a late body of its answer
   * would be read as the answer to the next request.
   */
  private readonly agents: GuardedAgents;

  constructor({ egress, tls, proxy }: TransportOptions) {
    this.pool = createGuardedAgents(egress, { tls, proxy });
    this.agents = createGuardedAgents(egress, { tls, proxy, keepAlive: false });
    const { httpAgent, httpsAgent } = this.agents;
    this.settings = { ...DELIVERY_SETTINGS, httpAgent, httpsAgent };
  }

  close(): void {
    this.pool.destroy();
    this.agents.destroy();
  }
}

const anyStatus = (): boolean => true;

/**
 * Sends requests through HttpService, and below it through node:http and the egress guard. axios is loaded for the first request.
 *
 * If an interceptor has changed one of the settings, for example to use a proxy, the HTTP adapter of axios sends the request.
 */
export class HttpTransport {
  private readonly log = new PublisherLog();
  private readonly own: Connections;
  /** By client certificate, so that no connection is shared by two identities. */
  private readonly identities = new Map<string, Connections>();
  private client: Promise<HttpClient> | undefined;

  /** @param given - the application's HttpService; by default, one is created */
  constructor(
    private readonly options: TransportOptions,
    private readonly given: HttpService | undefined,
  ) {
    this.own = new Connections(options);
  }

  /**
   * Sends one request.
   *
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
    const client = await (this.client ??= this.load());
    if (signal.aborted) return { reason: signal.reason as 'timeout' | 'aborted' };
    const connections = certificate === undefined ? this.own : this.connectionsOf(certificate);
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
      try {
        const config = this.configOf(request, client, connections, signal);
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
    for (const connections of [this.own, ...this.identities.values()]) connections.close();
  }

  private connectionsOf(certificate: ClientCertificate): Connections {
    const { cert, key, passphrase, ca = this.options.tls?.ca } = certificate;
    // Nothing else of the publisher's tls: its own certificate is another identity.
    const tls = { cert, key, passphrase, ca };
    const identity = createHash('sha256').update(JSON.stringify(tls)).digest('base64');
    const connections = this.identities.get(identity) ?? new Connections({ ...this.options, tls });
    this.identities.delete(identity);
    this.identities.set(identity, connections);
    if (this.identities.size > MAX_IDENTITIES) this.closeIdle(identity);
    return connections;
  }

  private closeIdle(current: string): void {
    for (const [identity, connections] of this.identities) {
      if (identity === current || connections.requests > 0) continue;
      this.identities.delete(identity);
      return connections.close();
    }
  }

  private async load(): Promise<HttpClient> {
    const { given } = this;
    if (given !== undefined && this.defaults === undefined) {
      // A fake; axios may be missing.
      return { http: given, adapterOf: () => 'http' };
    }
    const axios = await import('axios');
    const stock = axios.getAdapter('http');
    return {
      http: given ?? (await createHttpService()),
      adapterOf: (connections) =>
        (connections.adapter ??= async (config) =>
          isUnchanged(config, connections.settings)
            ? sendByNode(axios, config, connections.pool)
            : stock(config)),
      // Without one, HttpService creates and cancels a token for every request. Attempts are cancelled by their signal.
      cancelToken: new axios.default.CancelToken(() => undefined),
    };
  }

  private configOf(
    { method, url, headers, body }: ComposedRequest,
    { adapterOf, cancelToken }: HttpClient,
    connections: Connections,
    signal: AbortSignal,
  ): AxiosRequestConfig {
    return {
      ...(connections.settings as object),
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
      ...(!this.usesForeignAdapter && { adapter: adapterOf(connections) }),
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
