import type { HttpService } from '@nestjs/axios';
import type { AxiosAdapter, AxiosRequestConfig, CancelToken } from 'axios';
import type { EgressPolicy } from '../egress/egress-policy.js';
import {
  createGuardedAgents,
  type EgressTlsOptions,
  type GuardedAgents,
} from '../egress/guarded-agent.js';
import type { AttemptWarnings } from './attempt-warnings.js';
import {
  changedSetting,
  DELIVERY_SETTINGS,
  deliveryAdapter,
  type DeliverySettings,
} from './delivery-adapter.js';
import {
  answerOfError,
  readAnswer,
  type NoAnswer,
  type ReceiverAnswer,
} from './receiver-answer.js';
import type { ComposedRequest } from './request.composer.js';
import { createHttpService } from './webhook-http.js';

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

const anyStatus = (): boolean => true;

/** Sends requests through HttpService and the egress guard. axios is loaded for the first one. */
export class HttpTransport {
  /** Keep connections for further requests. */
  private readonly pool: GuardedAgents;
  /** For requests that axios sends, see {@link deliveryAdapter}. */
  private readonly agents: GuardedAgents;
  private readonly settings: DeliverySettings;
  private client: Promise<HttpClient> | undefined;

  /** @param given - the application's HttpService; by default, one is created */
  constructor(
    { egress, tls }: TransportOptions,
    private readonly given: HttpService | undefined,
    private readonly warnings: AttemptWarnings,
  ) {
    this.pool = createGuardedAgents(egress, { tls });
    this.agents = createGuardedAgents(egress, { tls, keepAlive: false });
    const { httpAgent, httpsAgent } = this.agents;
    this.settings = { ...DELIVERY_SETTINGS, httpAgent, httpsAgent };
  }

  /** Whether the application has set its own axios adapter, whose connections the egress guard cannot check. */
  get usesForeignAdapter(): boolean {
    return typeof this.defaults?.adapter === 'function';
  }

  /**
   * Sends one request.
   *
   * @param signal - ends it; its reason becomes the failure
   * @returns the answer, or why there is none
   * @throws if axios cannot be loaded
   */
  async exchange(
    request: ComposedRequest,
    signal: AbortSignal,
  ): Promise<ReceiverAnswer | NoAnswer> {
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
    return {
      http: given ?? (await createHttpService()),
      adapter: deliveryAdapter(axios, this.settings, this.pool),
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

  /**
   * Warns if an interceptor of the application has made a request bypass the egress guard.
   *
   * @param outcome - the response or the error, to which axios attaches the settings that were used
   */
  private warnOfBypass(asked: AxiosRequestConfig, outcome: unknown): void {
    try {
      const { config } = outcome as { config?: object };
      if (typeof config !== 'object') return;
      const names = this.usesForeignAdapter ? DECISIVE : ['adapter', ...DECISIVE];
      const changed = changedSetting(config, asked, names);
      if (changed !== undefined) this.warnings.bypassed(changed);
    } catch {
      // Reading a thrown value may throw.
    }
  }

  private unreadable(): NoAnswer {
    this.warnings.unreadable();
    return { reason: 'malformed_response', isUnreadable: true };
  }
}
