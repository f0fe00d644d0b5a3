import type { HttpService } from '@nestjs/axios';
import { isWebhookError } from '../errors/webhook.error.js';
import type { WebhookDelivery } from '../queue/webhook-delivery.interface.js';
import type { MaybePromise } from '../token/maybe-promise.js';
import type { DeliveryTarget } from './delivery-target.js';
import { excerptOf } from './answer-excerpt.js';
import { attemptResult, type MadeAttempt } from './attempt-result.js';
import { AttemptWarnings } from './attempt-warnings.js';
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
  requireInline,
  wantedMethod,
  type ComposedRequest,
  type CompositionLimits,
} from './request.composer.js';
import { signingFailure, within } from './signing-deadline.js';

/** Options of the {@link WebhookSender}. */
export interface SenderOptions extends TransportOptions {
  readonly clock: WebhookClock;
  readonly maxHeadBytes: number;
  /** Whether the beginning of an answer's body is read, for the delivery log. */
  readonly readsAnswers: boolean;
}

/** Makes one attempt: signs the request, sends it, and judges the answer. */
export class WebhookSender {
  private readonly running = new Set<AbortController>();
  private readonly warnings = new AttemptWarnings();
  private readonly transport: HttpTransport;
  private readonly limits: Omit<CompositionLimits, 'attempt'>;

  constructor(
    private readonly options: SenderOptions,
    http: HttpService,
  ) {
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
   * @throws {@link WebhookDeliveryError} `invalid_option` if HEAD is required and cannot carry the payload
   */
  compose(
    delivery: WebhookDelivery,
    target: DeliveryTarget,
    attempt = 1,
  ): MaybePromise<ComposedRequest> {
    return composeRequest(delivery, target, { ...this.limits, attempt });
  }

  /**
   * Refuses an explicit HEAD that can never carry the delivery. A remote signer is not called, so that events are recorded
   * while it is down.
   *
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  async requireThatHeadCanCarry(delivery: WebhookDelivery, target: DeliveryTarget): Promise<void> {
    requireInline(delivery, target, this.limits);
    if (target.signer.inlineLimit !== undefined) return;
    try {
      await this.compose(delivery, target);
    } catch (error) {
      // A later attempt may have a key.
      if (signingFailure(error) === undefined) throw error;
    }
  }

  /** Attempts a delivery once; an inconclusive HEAD is followed by a POST within the same attempt. */
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
      const requests: ComposedRequest[] = [];
      const { method, answer } = await this.exchange(
        delivery,
        target,
        attempt,
        deadline.signal,
        requests,
      );
      const now = clock.now();
      const receipt = requests.at(-1)?.receipt;
      const facts = { attempt, method, durationMs: Math.max(0, now - startedAt), receipt };
      const excerpt = this.excerpt(answer, target, requests);
      return {
        result: attemptResult(facts, answer, now),
        at: startedAt,
        ...(receipt !== undefined && { receipt }),
        ...(excerpt !== undefined && { answer: excerpt }),
      };
    } finally {
      cancel();
      this.running.delete(deadline);
    }
  }

  /** Aborts running attempts and closes the connections. */
  close(): void {
    for (const attempt of this.running) attempt.abort('aborted');
    this.transport.close();
  }

  /** @param requests - collects the requests that are made, in order */
  private async exchange(
    delivery: WebhookDelivery,
    target: DeliveryTarget,
    attempt: number,
    signal: AbortSignal,
    requests: ComposedRequest[],
  ): Promise<Exchange> {
    try {
      this.options.egress.recheckUrl(target.url);
      const request = await within(signal, this.compose(delivery, target, attempt));
      this.warnings.signed();
      requests.push(request);
      const { method } = request;
      const answer = await this.transport.exchange(request, signal);
      const mayFallBack = method === 'HEAD' && wantedMethod(delivery, target) === 'auto';
      if (isAcknowledged(method, answer) || !mayFallBack || !isInconclusive(answer)) {
        return { method, answer };
      }
      const post = await within(signal, composePost(delivery, target, attempt));
      requests.push(post);
      const second = await this.transport.exchange(post, signal);
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
    { url, headers }: DeliveryTarget,
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
