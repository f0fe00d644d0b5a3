import type { HttpService } from '@nestjs/axios';
import type { WebhookClock } from '../clock/webhook-clock.js';
import type { RequestTracing } from '../diagnostics/operation.js';
import { isWebhookError, type WebhookError } from '../errors/webhook.error.js';
import type { OutgoingDelivery } from '../queue/webhook-delivery.js';
import { PublisherLog } from '../signing/publisher-log.js';
import { excerptOf } from './answer-excerpt.js';
import {
  attemptResult,
  isAcknowledged,
  isInconclusive,
  type Attempt,
  type NoAnswer,
  type ReceiverAnswer,
} from './attempt-result.js';
import type { Endpoint } from './endpoint.js';
import { HttpTransport, type TransportOptions } from './http.transport.js';
import {
  RequestComposer,
  wantedMethod,
  type ComposedRequest,
  type RequestContext,
} from './request.composer.js';
import { signingFailure } from './signing-failure.js';

/** Options of the {@link WebhookSender}. */
export interface SenderOptions extends TransportOptions {
  readonly clock: WebhookClock;
  readonly maxHeadBytes: number;
}

/** The requests of an attempt, and the answer that counts. */
interface Exchange {
  readonly requests: readonly ComposedRequest[];
  /** The method whose answer counts. */
  readonly method: 'HEAD' | 'POST';
  readonly answer: ReceiverAnswer | NoAnswer;
}

/** Makes one attempt: signs the request, sends it, and judges the answer. */
export class WebhookSender {
  readonly composer: RequestComposer;
  private readonly log = new PublisherLog();
  private readonly transport: HttpTransport;
  private readonly running = new Set<AbortController>();

  /** @param http - the application's; by default, one is created for the first attempt */
  constructor(
    private readonly options: SenderOptions,
    http: HttpService | undefined,
  ) {
    this.transport = new HttpTransport(options, http);
    this.composer = new RequestComposer(options.clock, options.maxHeadBytes, () =>
      this.transport.inheritedHeaders(),
    );
  }

  /** Whether the application has set its own axios adapter, whose connections the egress guard cannot check. */
  get usesForeignAdapter(): boolean {
    return this.transport.usesForeignAdapter;
  }

  /** Attempts a delivery once; an inconclusive HEAD is followed by a POST within the same attempt. */
  async attempt(
    delivery: OutgoingDelivery,
    endpoint: Endpoint,
    attempt: number,
    tracing?: RequestTracing,
  ): Promise<Attempt> {
    const { clock } = this.options;
    const startedAt = clock.now();
    const controller = new AbortController();
    const { signal } = controller;
    const cancel = clock.wakeAt(startedAt + endpoint.timeout, () => controller.abort('timeout'));
    this.running.add(controller);
    try {
      const context = { attempt, signal, trace: tracing?.trace };
      const exchange = await this.exchange(delivery, endpoint, context, async (request) =>
        tracing === undefined
          ? this.transport.send(request, signal)
          : tracing.send(async () => this.transport.send(request, signal)),
      );
      const { requests, method, answer } = exchange;
      const now = clock.now();
      const receipt = requests.at(-1)?.receipt;
      const facts = { attempt, method, durationMs: Math.max(0, now - startedAt), receipt };
      const result = attemptResult(facts, answer, now);
      const { profile } = requests.at(-1) ?? {};
      return { result, at: startedAt, receipt, profile, answer: this.excerpt(endpoint, exchange) };
    } finally {
      cancel();
      this.running.delete(controller);
    }
  }

  /** Aborts running attempts and closes the connections. */
  close(): void {
    for (const controller of this.running) controller.abort('aborted');
    this.transport.close();
  }

  private async exchange(
    delivery: OutgoingDelivery,
    endpoint: Endpoint,
    context: RequestContext,
    send: (request: ComposedRequest) => Promise<ReceiverAnswer | NoAnswer>,
  ): Promise<Exchange> {
    const requests: ComposedRequest[] = [];
    try {
      this.options.egress.checkUrl(endpoint.url);
      const request = await this.composer.compose(delivery, endpoint, context);
      this.log.recovered('signing');
      requests.push(request);
      const { method } = request;
      const answer = await send(request);
      const mayFallBack = method === 'HEAD' && wantedMethod(delivery, endpoint) === 'auto';
      if (isAcknowledged(method, answer) || !mayFallBack || !isInconclusive(answer)) {
        return { requests, method, answer };
      }
      const post = await this.composer.composePost(delivery, endpoint, context);
      requests.push(post);
      const second = await send(post);
      // Only a successful POST shows that HEAD was the problem: during a receiver's deployment both get 404, and
      // the next attempt should start with HEAD again.
      if (isAcknowledged('POST', second)) endpoint.state.needsPost = true;
      return { requests, method: 'POST', answer: second };
    } catch (error) {
      // An unexpected error is not an outcome; the queue runs the delivery again.
      if (!isWebhookError(error)) throw error;
      const unsigned = signingFailure(error);
      if (unsigned !== undefined && unsigned !== 'aborted') this.warnUnsigned(error);
      const rejected = error.code === 'destination_blocked' ? error.code : 'invalid_request';
      // The method is unknown before the request is signed, and POST after a HEAD.
      return { requests, method: 'POST', answer: { reason: unsigned ?? rejected } };
    }
  }

  /** Logs once until signing succeeds again: a failing key service affects every delivery. */
  private warnUnsigned({ code, message }: WebhookError): void {
    this.log.once(
      'warn',
      'signing',
      () => `Deliveries cannot be signed and are retried on schedule (${code}): ${message}`,
      code,
    );
  }

  /** The beginning of the answer, which is stored with the attempt. */
  private excerpt({ url, headers }: Endpoint, { requests, answer }: Exchange): string | undefined {
    if (answer.statusCode === undefined) return undefined;
    const tokens = requests.map(({ token }) => token);
    const signatures = requests.flatMap(({ headers: { 'webhook-signature': value = '' } }) =>
      value.split(' '),
    );
    return answer.body && excerptOf(answer.body, { tokens, signatures, url, headers });
  }
}
