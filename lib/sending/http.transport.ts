import type { HttpService } from '@nestjs/axios';
import type { AxiosAdapter } from 'axios';
import type { EgressPolicy } from '../egress/egress-policy.js';
import {
  createGuardedAgents,
  type EgressTlsOptions,
  type GuardedAgents,
} from '../egress/guarded-agent.js';
import type { FailureReason } from '../queue/failure-reason.js';
import type { AttemptWarnings } from './attempt-warnings.js';
import {
  answerOfError,
  readAnswer,
  type NoAnswer,
  type ReceiverAnswer,
} from './receiver-answer.js';
import type { ComposedRequest } from './request.composer.js';
import { requestConfig, type HttpDefaults } from './request-config.js';
import { loadUndici, type UndiciTransport } from './undici.transport.js';

/** Options of the {@link HttpTransport}. */
export interface TransportOptions {
  readonly egress: EgressPolicy;
  readonly tls: EgressTlsOptions | undefined;
  readonly transport: 'auto' | 'axios';
}

/** Sends requests through the application's HttpService and the egress guard. */
export class HttpTransport {
  private readonly agents: GuardedAgents;
  private undici: UndiciTransport | undefined;

  constructor(
    private readonly options: TransportOptions,
    private readonly http: HttpService,
    private readonly warnings: AttemptWarnings,
  ) {
    this.agents = createGuardedAgents(options.egress, { tls: options.tls });
  }

  /** Uses undici if it is installed, unless the options say otherwise. */
  async choose(): Promise<void> {
    const { egress, tls, transport } = this.options;
    if (transport === 'auto') this.undici = await loadUndici(egress, { agents: this.agents, tls });
  }

  /** Whether the application has set its own axios adapter, whose connections the egress guard cannot check. */
  get usesForeignAdapter(): boolean {
    return typeof this.defaults['adapter'] === 'function';
  }

  /**
   * Sends one request.
   *
   * @param signal - aborts the request; its reason becomes the failure
   * @returns the answer, or why there is none; never rejects
   */
  exchange(request: ComposedRequest, signal: AbortSignal): Promise<ReceiverAnswer | NoAnswer> {
    return new Promise((resolve) => {
      if (signal.aborted) return resolve({ reason: signal.reason as FailureReason });
      try {
        const { agents, adapter, defaults } = this;
        const config = requestConfig(request, signal, { agents, adapter, defaults });
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
        signal.addEventListener(
          'abort',
          () => {
            resolve({ reason: signal.reason as FailureReason });
            try {
              subscription.unsubscribe();
            } catch {
              // An interceptor's teardown threw; rethrown from an event listener, it would end the process.
            }
          },
          { once: true },
        );
      } catch (error) {
        resolve(answerOfError(error));
      }
    });
  }

  /** Headers that the application's HttpService adds to every request, and so to ours. */
  inheritedHeaders(): Record<string, string> {
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
    this.undici?.close();
  }

  private get adapter(): AxiosAdapter | 'http' | undefined {
    return this.usesForeignAdapter ? undefined : (this.undici?.adapter ?? 'http');
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
