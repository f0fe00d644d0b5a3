import type { HttpService } from '@nestjs/axios';
import type { AxiosRequestConfig, CancelToken } from 'axios';
import { createGuardedAgents, type GuardedAgents } from '../../egress/guarded-agent.js';
import { isWebhookError, type WebhookError } from '../../errors/webhook.error.js';
import type { WebhookReceipt } from '../../token/webhook-receipt.interface.js';
import { excerptOf } from './answer-excerpt.js';
import type { AttemptResult } from './attempt-result.interface.js';
import type { FailureReason } from '../../queue/failure-reason.js';
import type { DeliveryTarget } from '../delivery-target.js';
import type { ResolvedPublisherOptions } from '../options/publisher-options.interface.js';
import type { MadeAttempt } from './made-attempt.interface.js';
import { MAX_ANSWER_BYTES } from '../publisher.constants.js';
import { PublisherLog } from '../publisher-log.js';
import {
  isAcknowledged,
  isInconclusive,
  readAnswer,
  type NoAnswer,
  type ReceiverAnswer,
} from './receiver-answer.js';
import {
  composePost,
  composeRequest,
  requireInline,
  wantedMethod,
  type ComposedRequest,
  type CompositionLimits,
} from './request.composer.js';
import { guardBypass } from './guard-bypass.js';
import { parseRetryAfter } from './retry-after.js';
import { signingFailure, within } from './signing-deadline.js';
import { loadUndici, type UndiciTransport } from './undici.transport.js';
import { transportFailure } from './transport-failure.js';
import type { WebhookDelivery } from '../../queue/webhook-delivery.interface.js';

/** Makes one attempt: signs, sends through HttpService, and says in plain words how it ended. */
export class WebhookSender {
  private readonly agents: GuardedAgents;
  private readonly running = new Set<AbortController>();
  private readonly log = new PublisherLog();
  private hasToldOfUnreadable = false;
  private hasToldOfBypass = false;
  private toldOfSigning: string | undefined;

  private transport: UndiciTransport | undefined;

  constructor(
    private readonly options: ResolvedPublisherOptions,
    private readonly http: HttpService,
  ) {
    this.agents = createGuardedAgents(options.egress, { tls: options.tls });
  }

  /** Chooses how requests leave: over undici where the application has it and has not said otherwise. */
  async chooseTransport(): Promise<this> {
    const { egress, tls, transport } = this.options;
    if (transport === 'auto') {
      this.transport = await loadUndici(egress, { agents: this.agents, tls });
    }
    return this;
  }

  /** Whether requests leave by an adapter of the application's own, which the egress guard cannot watch. */
  get usesForeignAdapter(): boolean {
    return typeof this.axiosDefaults?.adapter === 'function';
  }

  /**
   * Signs a delivery anew without sending it.
   *
   * @param attempt - counts from 1; some wire formats carry it
   * @throws {@link WebhookDeliveryError} `invalid_option` when HEAD is demanded and cannot carry the payload
   */
  compose(
    delivery: WebhookDelivery,
    target: DeliveryTarget,
    attempt = 1,
  ): Promise<ComposedRequest> {
    return composeRequest(delivery, target, { ...this.limits(), attempt });
  }

  /**
   * Refuses a HEAD that can never carry the delivery. A signer that is elsewhere is not asked for it: an event is
   * recorded although it is down.
   *
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  async requireThatHeadCanCarry(delivery: WebhookDelivery, target: DeliveryTarget): Promise<void> {
    requireInline(delivery, target, this.limits());
    if (target.signer.inlineLimit !== undefined) return;
    try {
      await this.compose(delivery, target);
    } catch (error) {
      // Time will bring a key; the attempt waits for it.
      if (signingFailure(error) === undefined) throw error;
    }
  }

  /** Attempts a delivery once; a HEAD that gets nowhere is followed by a POST within the same attempt. */
  async attempt(
    delivery: WebhookDelivery,
    target: DeliveryTarget,
    attempt: number,
  ): Promise<MadeAttempt> {
    const { clock } = this.options;
    const startedAt = clock.now();
    const deadline = new AbortController();
    this.running.add(deadline);
    const cancel = clock.wakeAt(startedAt + target.timeout, () => deadline.abort('timeout'));
    try {
      const tokens: string[] = [];
      const { method, receipt, answer, refused } = await this.converse(
        delivery,
        target,
        attempt,
        deadline.signal,
        tokens,
      );
      const now = clock.now();
      const durationMs = Math.max(0, now - startedAt);
      const facts = { attempt, method, durationMs, ...(receipt !== undefined && { receipt }) };
      const result: AttemptResult =
        refused === undefined
          ? resultOf(facts, answer, now)
          : { ...facts, outcome: 'refused', reason: refused };
      const excerpt = this.excerpt(answer, target, tokens);
      return { result, at: startedAt, ...(excerpt !== undefined && { answer: excerpt }) };
    } finally {
      cancel();
      this.running.delete(deadline);
    }
  }

  /** Aborts what still runs, and closes the connections. */
  close(): void {
    for (const attempt of this.running) attempt.abort('aborted');
    this.agents.destroy();
    this.transport?.close();
  }

  private async converse(
    delivery: WebhookDelivery,
    target: DeliveryTarget,
    attempt: number,
    signal: AbortSignal,
    tokens: string[],
  ): Promise<Conversation> {
    let method: 'HEAD' | 'POST' = 'POST';
    let receipt: WebhookReceipt | undefined;
    try {
      this.options.egress.checkUrl(target.url);
      const request = await within(signal, this.compose(delivery, target, attempt));
      this.toldOfSigning = undefined;
      ({ method, receipt } = request);
      tokens.push(request.token);
      const answer = await this.exchange(request, signal);
      const mayFallBack = method === 'HEAD' && wantedMethod(delivery, target) === 'auto';
      if (isAcknowledged(method, answer) || !mayFallBack || !isInconclusive(answer)) {
        return conversation(request, answer);
      }
      method = 'POST';
      const post = await within(signal, composePost(delivery, target, attempt));
      ({ receipt } = post);
      tokens.push(post.token);
      const second = await this.exchange(post, signal);
      // Only a POST that worked shows that HEAD was the trouble: while a receiver is being deployed, both
      // get 404, and the next attempt should find it as it was.
      if (isAcknowledged('POST', second)) target.state.needsPost = true;
      return conversation(post, second);
    } catch (error) {
      // Anything unforeseen is no verdict: the queue runs it again.
      if (!isWebhookError(error)) throw error;
      const unsigned = signingFailure(error);
      if (unsigned !== undefined) {
        if (unsigned !== 'aborted') this.tellOfSigning(error);
        return { method, receipt, answer: { reason: unsigned } };
      }
      const refused = error.code === 'destination_blocked' ? error.code : 'invalid_request';
      return { method, receipt, answer: { reason: refused }, refused };
    }
  }

  private exchange(
    request: ComposedRequest,
    signal: AbortSignal,
  ): Promise<ReceiverAnswer | NoAnswer> {
    return new Promise((resolve) => {
      if (signal.aborted) return resolve({ reason: signal.reason as FailureReason });
      try {
        const config = this.configFor(request, signal);
        const subscription = this.http.request<unknown>(config).subscribe({
          next: (response) => {
            this.tellOfBypass(config, response);
            resolve(readAnswer(response) ?? this.unreadable());
          },
          error: (error: unknown) => {
            this.tellOfBypass(config, error);
            resolve(answerFromError(error));
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
              // A fault in an interceptor's teardown; out of an event listener it would end the process.
            }
          },
          { once: true },
        );
      } catch (error) {
        resolve(answerFromError(error));
      }
    });
  }

  /** For the log; without one nothing of an answer's body is read. */
  private excerpt(
    answer: ReceiverAnswer | NoAnswer,
    { url, headers }: DeliveryTarget,
    tokens: readonly string[],
  ): string | undefined {
    if (this.options.deliveryLog === undefined || answer.statusCode === undefined) return undefined;
    return answer.body && excerptOf(answer.body, { tokens, url, headers });
  }

  /** Once, until something is signed again: a key service that is down fails every delivery. */
  private tellOfSigning({ code, message }: WebhookError): void {
    if (code === this.toldOfSigning) return;
    this.toldOfSigning = code;
    this.log.warn(
      () => `Deliveries cannot be signed and are tried again by the schedule (${code}): ${message}`,
    );
  }

  /** Once: an application that has set it on purpose, say for a proxy, knows already. */
  private tellOfBypass(config: AxiosRequestConfig, outcome: unknown): void {
    if (this.hasToldOfBypass) return;
    const setting = guardBypass(config, outcome);
    if (setting === undefined) return;
    this.hasToldOfBypass = true;
    this.log.warn(
      () =>
        `An interceptor of HttpService replaces ${setting}: the egress guard checks the URLs of deliveries, but cannot check the addresses they are sent to. If that is not meant, give the publisher an HttpService without it, by the option httpModule.`,
    );
  }

  private limits(): Omit<CompositionLimits, 'attempt'> {
    return {
      maxHeadBytes: this.options.maxHeadBytes,
      inheritedHeaders: this.inheritedHeaders(),
    };
  }

  private unreadable(): NoAnswer {
    if (!this.hasToldOfUnreadable) {
      this.hasToldOfUnreadable = true;
      this.log.warn(
        () =>
          'HttpService gives what is no axios response (malformed_response): an interceptor that unwraps answers, like `(response) => response.data`, hides whether they acknowledge, and every delivery is sent again. Give the publisher an HttpService without it, by the option httpModule.',
      );
    }
    return { reason: 'malformed_response', isUnreadable: true };
  }

  private configFor(
    { method, url, headers, body }: ComposedRequest,
    signal: AbortSignal,
  ): AxiosRequestConfig {
    return {
      method,
      url,
      headers: { ...headers },
      // Without a body `data` must stay away: axios would send '' as `""` and null as `null`.
      ...(body !== undefined && { data: body }),
      transformRequest: [(data: unknown) => data],
      // One that parses JSON fails on an empty 204: the event was taken, and would be sent again.
      transformResponse: [(data: unknown) => data],
      responseType: 'arraybuffer',
      validateStatus: () => true,
      decompress: false,
      maxContentLength: MAX_ANSWER_BYTES,
      maxBodyLength: Infinity,
      maxRedirects: 0,
      // A proxy from the environment would connect in our place, past the egress guard.
      proxy: false,
      httpAgent: this.agents.httpAgent,
      httpsAgent: this.agents.httpsAgent,
      // The attempt's own deadline; axios' timeout only counts silence, and a dripping answer is none.
      signal,
      timeout: 0,
      ...(!this.usesForeignAdapter && { adapter: this.transport?.adapter ?? 'http' }),
      cancelToken: NEVER_CANCELLED,
      ...NEUTRAL,
    };
  }

  /** What every request of the application's HttpService carries, and so ours too. */
  private inheritedHeaders(): Record<string, string> {
    const headers = (this.axiosDefaults?.headers ?? {}) as unknown as Record<string, unknown>;
    const inherited = { ...(headers['common'] as object), ...(headers['head'] as object) };
    return Object.fromEntries(
      Object.entries(inherited).filter(
        (entry): entry is [string, string] => typeof entry[1] === 'string',
      ),
    );
  }

  /** A stand-in for HttpService in somebody's test need not have an axios behind it. */
  private get axiosDefaults(): Partial<HttpService['axiosRef']['defaults']> | undefined {
    return (this.http as Partial<HttpService>).axiosRef?.defaults;
  }
}

interface Conversation {
  /** The method whose answer counts. */
  readonly method: 'HEAD' | 'POST';
  /** Of the last request that was made. */
  readonly receipt: WebhookReceipt | undefined;
  readonly answer: ReceiverAnswer | NoAnswer;
  readonly refused?: FailureReason;
}

/**
 * HttpService makes a token of its own otherwise, and cancels with it after every success: an error with a stack for
 * nothing (benchmark `send`). Attempts are cancelled by their signal.
 */
const NEVER_CANCELLED = {
  promise: new Promise<never>(() => {}),
  throwIfRequested: () => {},
  subscribe: () => {},
  unsubscribe: () => {},
} as unknown as CancelToken;

/**
 * Defaults that an application may have set on its HttpService for another purpose, and that would replace
 * our Authorization, send the token elsewhere, or go round the egress guard. For HTTP/2, axios opens sessions
 * without any agent, and so without the guard.
 */
const NEUTRAL = {
  auth: null,
  baseURL: '',
  http2Options: null,
  httpVersion: 1,
  insecureHTTPParser: false,
  params: null,
  socketPath: null,
  transport: null,
} as unknown as AxiosRequestConfig;

function conversation(
  { method, receipt }: ComposedRequest,
  answer: ReceiverAnswer | NoAnswer,
): Conversation {
  const isBlocked = answer.statusCode === undefined && answer.reason === 'destination_blocked';
  return { method, receipt, answer, ...(isBlocked && { refused: answer.reason }) };
}

/**
 * An error that brings an answer along is that answer: interceptors and stand-ins throw it. Not so with a
 * 2xx, which is an answer that was cut off.
 */
function answerFromError(error: unknown): ReceiverAnswer | NoAnswer {
  try {
    const answer = readAnswer((error as { response?: unknown } | null | undefined)?.response);
    return answer !== undefined && answer.statusCode >= 300
      ? answer
      : { reason: transportFailure(error) };
  } catch {
    // Anything can be thrown, also what throws when it is looked at.
    return { reason: 'network' };
  }
}

function resultOf(
  facts: Pick<AttemptResult, 'attempt' | 'method' | 'durationMs' | 'receipt'>,
  answer: ReceiverAnswer | NoAnswer,
  now: number,
): AttemptResult {
  if (answer.statusCode === undefined) {
    return { ...facts, outcome: 'failed', reason: answer.reason };
  }
  const { statusCode } = answer;
  if (isAcknowledged(facts.method, answer)) {
    return { ...facts, outcome: 'acknowledged', statusCode };
  }
  const retryAfter = parseRetryAfter(answer.retryAfter, now);
  return {
    ...facts,
    outcome: 'failed',
    statusCode,
    reason: `http_${statusCode}`,
    ...(retryAfter !== undefined && { retryAfter }),
  };
}
