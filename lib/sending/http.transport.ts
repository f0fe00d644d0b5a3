import type { HttpService } from '@nestjs/axios';
import type { AxiosRequestConfig } from 'axios';
import type { EgressPolicy } from '../egress/egress-policy.js';
import {
  createGuardedAgents,
  type EgressTlsOptions,
  type GuardedAgents,
} from '../egress/guarded-agent.js';
import type { AttemptDeadline } from './attempt-deadline.js';
import type { AttemptWarnings } from './attempt-warnings.js';
import { DeliveryAdapter } from './delivery.adapter.js';
import { isLean, isUntouched } from './lean-axios.js';
import {
  answerOfError,
  readAnswer,
  type NoAnswer,
  type ReceiverAnswer,
} from './receiver-answer.js';
import type { ComposedRequest } from './request.composer.js';
import { requestConfig, type HttpDefaults } from './request-config.js';

/** Options of the {@link HttpTransport}. */
export interface TransportOptions {
  readonly egress: EgressPolicy;
  readonly tls: EgressTlsOptions | undefined;
  readonly transport: 'auto' | 'axios';
}

/** Sends requests through HttpService and the egress guard. */
export class HttpTransport {
  private readonly agents: GuardedAgents;
  private adapter: DeliveryAdapter | undefined;
  /** Whether HttpService is the module's own, which takes an {@link AttemptDeadline} for a signal. */
  private readonly isLean: boolean;

  constructor(
    private readonly options: TransportOptions,
    private readonly http: HttpService,
    private readonly warnings: AttemptWarnings,
  ) {
    this.agents = createGuardedAgents(options.egress, { tls: options.tls });
    this.isLean = isLean((http as Partial<HttpService>).axiosRef);
  }

  /** Loads the adapter for deliveries, unless the options say otherwise; until then, that of axios is used. */
  async choose(): Promise<void> {
    const { egress, tls, transport } = this.options;
    if (transport === 'auto') {
      this.adapter = await DeliveryAdapter.load(egress, { agents: this.agents, tls });
    }
  }

  /** Whether the application has set its own axios adapter, whose connections the egress guard cannot check. */
  get usesForeignAdapter(): boolean {
    return typeof this.defaults['adapter'] === 'function';
  }

  /**
   * Sends one request.
   *
   * @param deadline - ends it; its reason becomes the failure
   * @returns the answer, or why there is none; never rejects
   */
  exchange(
    request: ComposedRequest,
    deadline: AttemptDeadline,
  ): Promise<ReceiverAnswer | NoAnswer> {
    return new Promise((resolve) => {
      if (deadline.aborted) return resolve({ reason: deadline.reason });
      try {
        const config = this.configOf(request, deadline);
        const subscription = this.http.request<unknown>(config).subscribe({
          next: (response) => {
            this.warnings.bypassed(config, response);
            resolve(readAnswer(response) ?? this.unreadable());
          },
          error: (error: unknown) => {
            this.warnings.bypassed(config, error);
            resolve(answerOfError(error));
          },
          complete: () => resolve({ reason: 'network' }),
        });
        deadline.addEventListener('abort', () => {
          resolve({ reason: deadline.reason });
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
  inheritedHeaders(): Record<string, string> | undefined {
    if (this.isLean && isUntouched(this.http.axiosRef)) return undefined;
    const headers = (this.defaults['headers'] ?? {}) as Record<string, unknown>;
    const inherited = { ...(headers['common'] as object), ...(headers['head'] as object) };
    return Object.fromEntries(
      Object.entries(inherited).filter(
        (entry): entry is [string, string] => typeof entry[1] === 'string',
      ),
    );
  }

  /** Closes the connections. */
  close(): void {
    this.agents.destroy();
    this.adapter?.close();
  }

  private configOf(request: ComposedRequest, deadline: AttemptDeadline): AxiosRequestConfig {
    const { agents, defaults } = this;
    const adapter = this.usesForeignAdapter ? undefined : (this.adapter?.adapt ?? 'http');
    const signal = this.isLean ? deadline : deadline.signal;
    return requestConfig(request, signal, { agents, adapter, defaults });
  }

  /** In an application's tests, a fake HttpService may have no axios. */
  private get defaults(): HttpDefaults {
    return (this.http as Partial<HttpService>).axiosRef?.defaults ?? {};
  }

  private unreadable(): NoAnswer {
    this.warnings.unreadable();
    return { reason: 'malformed_response', isUnreadable: true };
  }
}
