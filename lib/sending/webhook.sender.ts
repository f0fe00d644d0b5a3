import type { HttpService } from '@nestjs/axios';
import { isWebhookError } from '../errors/webhook.error.js';
import type { OutgoingDelivery } from '../queue/webhook-delivery.interface.js';
import { isThenable, type MaybePromise, rescued } from '../token/maybe-promise.js';
import type { Endpoint } from './endpoint.js';
import { excerptOf } from './answer-excerpt.js';
import {
  type AttemptDeadline,
  AttemptDeadlines,
  signingFailure,
  within,
} from './attempt-deadline.js';
import { attemptResult, type Attempt } from './attempt-result.js';
import { AttemptWarnings } from './attempt-warnings.js';
import type { RequestTracing, TraceContext } from '../diagnostics/operation.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { HttpTransport, type TransportOptions } from './http.transport.js';
import {
  isAcknowledged,
  isInconclusive,
  type NoAnswer,
  type ReceiverAnswer,
} from './receiver-answer.js';
import {
  composePost,
  composeRequest,
  headSurelyFits,
  requireInline,
  wantedMethod,
  type ComposedRequest,
  type CompositionLimits,
} from './request.composer.js';

/** Options of the {@link WebhookSender}. */
export interface SenderOptions extends TransportOptions {
  readonly clock: WebhookClock;
  readonly maxHeadBytes: number;
  /** Whether the beginning of an answer's body is read, for the delivery log. */
  readonly readsAnswers: boolean;
}

/** Makes one attempt: signs the request, sends it, and judges the answer. */
export class WebhookSender {
  private readonly deadlines: AttemptDeadlines;
  private readonly warnings = new AttemptWarnings();
  private readonly transport: HttpTransport;
  private readonly limits: Omit<CompositionLimits, 'attempt'>;

  constructor(
    private readonly options: SenderOptions,
    http: HttpService,
  ) {
    this.deadlines = new AttemptDeadlines(options.clock);
    this.transport = new HttpTransport(options, http, this.warnings);
    this.limits = {
      maxHeadBytes: options.maxHeadBytes,
      inheritedHeaders: () => this.transport.inheritedHeaders(),
    };
  }

  /** Chooses the HTTP client; until then, the adapter of axios is used. */
  async chooseTransport(): Promise<this> {
    await this.transport.choose();
    return this;
  }

  /** Whether the application has set its own axios adapter, whose connections the egress guard cannot check. */
  get usesForeignAdapter(): boolean {
    return this.transport.usesForeignAdapter;
  }

  /**
   * Signs a delivery without sending it; synchronously if the signer is.
   *
   * @param attempt - counts from 1; some wire formats carry it
   * @param trace - sent in headers
   * @throws {@link WebhookDeliveryError} `invalid_option` if HEAD is required and cannot carry the payload
   */
  compose(
    delivery: OutgoingDelivery,
    target: Endpoint,
    attempt = 1,
    trace?: TraceContext,
  ): MaybePromise<ComposedRequest> {
    return composeRequest(delivery, target, { ...this.limits, attempt, trace });
  }

  /**
   * Refuses an explicit HEAD that can never carry the delivery. A remote signer is not called, so that events are recorded
   * while it is down.
   *
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  requireThatHeadCanCarry(delivery: OutgoingDelivery, target: Endpoint): MaybePromise<unknown> {
    requireInline(delivery, target, this.limits);
    if (target.signer.inlineLimit !== undefined) return undefined;
    if (headSurelyFits(delivery, target, this.limits)) return undefined;
    return rescued<unknown>(
      () => this.compose(delivery, target),
      (error) => {
        // A later attempt may have a key.
        if (signingFailure(error) === undefined) throw error;
      },
    );
  }

  /** Attempts a delivery once; an inconclusive HEAD is followed by a POST within the same attempt. */
  async attempt(
    delivery: OutgoingDelivery,
    target: Endpoint,
    attempt: number,
    tracing?: RequestTracing,
  ): Promise<Attempt> {
    const { clock } = this.options;
    const startedAt = clock.now();
    const deadline = this.deadlines.start(startedAt, target.timeout);
    try {
      const requests: ComposedRequest[] = [];
      const { method, answer } = await this.exchange(
        delivery,
        target,
        attempt,
        deadline,
        requests,
        tracing,
      );
      const now = clock.now();
      const receipt = requests.at(-1)?.receipt;
      const facts = { attempt, method, durationMs: Math.max(0, now - startedAt), receipt };
      const excerpt = this.excerpt(answer, target, requests);
      return { result: attemptResult(facts, answer, now), at: startedAt, receipt, answer: excerpt };
    } finally {
      this.deadlines.end(deadline);
    }
  }

  /** Aborts running attempts and closes the connections. */
  close(): void {
    this.deadlines.abortAll();
    this.transport.close();
  }

  /** @param requests - collects the requests that are made, in order */
  private async exchange(
    delivery: OutgoingDelivery,
    target: Endpoint,
    attempt: number,
    deadline: AttemptDeadline,
    requests: ComposedRequest[],
    tracing: RequestTracing | undefined,
  ): Promise<Exchange> {
    const trace = tracing?.trace;
    const send = (request: ComposedRequest): Promise<ReceiverAnswer | NoAnswer> =>
      tracing === undefined
        ? this.transport.exchange(request, deadline)
        : tracing.send(() => this.transport.exchange(request, deadline));
    try {
      this.options.egress.recheckUrl(target.url);
      const composed = within(deadline, this.compose(delivery, target, attempt, trace));
      // Each `await` costs a microtask (benchmark `send`).
      const request = isThenable(composed) ? await composed : composed;
      this.warnings.signed();
      requests.push(request);
      const { method } = request;
      const answer = await send(request);
      const mayFallBack = method === 'HEAD' && wantedMethod(delivery, target) === 'auto';
      if (isAcknowledged(method, answer) || !mayFallBack || !isInconclusive(answer)) {
        return { method, answer };
      }
      const post = await within(deadline, composePost(delivery, target, { attempt, trace }));
      requests.push(post);
      const second = await send(post);
      // Only a successful POST shows that HEAD was the problem: during a receiver's deployment both get 404, and
      // the next attempt should start with HEAD again.
      if (isAcknowledged('POST', second)) target.state.needsPost = true;
      return { method: 'POST', answer: second };
    } catch (error) {
      // An unexpected error is not an outcome; the queue runs the delivery again.
      if (!isWebhookError(error)) throw error;
      // The method is unknown before the request is signed, and POST after a HEAD.
      const method = 'POST';
      const unsigned = signingFailure(error);
      if (unsigned !== undefined) {
        if (unsigned !== 'aborted') this.warnings.unsigned(error);
        return { method, answer: { reason: unsigned } };
      }
      const reason = error.code === 'destination_blocked' ? error.code : 'invalid_request';
      return { method, answer: { reason } };
    }
  }

  /** For the delivery log; without one, the body of an answer is not read. */
  private excerpt(
    answer: ReceiverAnswer | NoAnswer,
    { url, headers }: Endpoint,
    requests: readonly ComposedRequest[],
  ): string | undefined {
    if (!this.options.readsAnswers || answer.statusCode === undefined) return undefined;
    const { body } = answer;
    if (body === undefined || body.octets.byteLength === 0) return undefined;
    return excerptOf(body, { tokens: requests.map(({ token }) => token), url, headers });
  }
}

interface Exchange {
  /** The method whose answer counts. */
  readonly method: 'HEAD' | 'POST';
  readonly answer: ReceiverAnswer | NoAnswer;
}
