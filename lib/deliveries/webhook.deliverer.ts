import type { WebhookClock } from '../clock/webhook-clock.js';
import { isThenable } from '../token/maybe-promise.js';
import type { FailureReason } from '../queue/failure-reason.js';
import type { WebhookDelivery } from '../queue/webhook-delivery.interface.js';
import type { DeliveryOutcome } from '../queue/webhook-queue.js';
import type { EndpointRegistry } from '../endpoints/endpoint.registry.js';
import type { AttemptResult, MadeAttempt } from '../sending/attempt-result.js';
import { type EndpointDisabled } from '../sending/delivery-target.js';
import { decideRetry, OVERLOAD_WAIT, type RetryPolicy } from '../sending/retry-policy.js';
import type { WebhookSender } from '../sending/webhook.sender.js';
import type { DeliveryLogWriter } from './delivery-log.writer.js';
import type { DeliveryReporter } from './delivery.reporter.js';
import { type EndpointTarget, isDisabled } from '../endpoints/stored-targets.js';

const CONFLICT = 409;
const GONE = 410;

/** The outcome of one run of a delivery. */
export interface DeliveryReport {
  readonly delivery: WebhookDelivery;
  /** The number of the attempt; 1 for the first. */
  readonly attempt: number;
  readonly outcome: DeliveryOutcome;
  /** Absent if no attempt was made. */
  readonly result?: AttemptResult;
  /** The same attempt, with details for the delivery log only. */
  readonly made?: MadeAttempt;
}

type DeliveryListener = (report: DeliveryReport) => void;

/** Durations in milliseconds. */
export interface DelivererOptions {
  readonly clock: WebhookClock;
  readonly retry: RetryPolicy;
  /** An endpoint that fails every attempt for this long is disabled. */
  readonly disableAfter: number;
}

/** Takes a delivery from the queue through one attempt to an outcome. */
export class WebhookDeliverer {
  private readonly listeners: DeliveryListener[] = [];

  constructor(
    private readonly options: DelivererOptions,
    private readonly endpoints: EndpointRegistry,
    private readonly sender: WebhookSender,
    private readonly log: DeliveryLogWriter,
    private readonly reporter: DeliveryReporter,
  ) {}

  /** Calls the listener with every outcome, before the queue records it. */
  onReport(listener: DeliveryListener): void {
    this.listeners.push(listener);
  }

  /** @throws if the attempt cannot be made now; the queue then repeats it */
  async deliver(delivery: WebhookDelivery, attempt: number): Promise<DeliveryOutcome> {
    if (delivery.received !== undefined) return this.deferReceived(delivery);
    const target = await this.targetOf(delivery);
    if (target === undefined) return this.giveUp(delivery, 'unknown_endpoint', attempt);
    if (isDisabled(target)) return this.giveUp(delivery, 'endpoint_disabled', attempt);
    const waitUntil = this.blockedUntil(target);
    if (waitUntil !== undefined) {
      if (this.isAbandonedUrl(target)) return this.giveUp(delivery, 'endpoint_disabled', attempt);
      return this.finish({ delivery, attempt, outcome: { type: 'defer', at: waitUntil } });
    }
    const made = await this.attempt(delivery, target, attempt);
    const { result } = made;
    const { outcome, pauseEndpointUntil = 0 } = decideRetry(
      this.options.retry,
      result,
      this.options.clock.now(),
      Math.random(),
      target.state.circuit.failuresInRow,
    );
    target.state.pausedUntil = Math.max(target.state.pausedUntil, pauseEndpointUntil);
    this.reporter.attempted(target, { delivery, attempt, outcome, result });
    await Promise.all([
      this.finish({ delivery, attempt, outcome, result, made }),
      this.judgeEndpoint(target, delivery, result),
    ]);
    return outcome;
  }

  private async targetOf(delivery: WebhookDelivery): Promise<EndpointTarget | undefined> {
    try {
      const found = this.endpoints.targetOf(delivery);
      if (!isThenable(found)) return found;
      const target = await found;
      this.reporter.lookupSucceeded();
      return target;
    } catch (error) {
      // A failed lookup says nothing about the endpoint: the queue repeats the attempt.
      this.reporter.lookupFailed(delivery, error);
      throw error;
    }
  }

  /** Returns until when the endpoint's deliveries wait, in epoch milliseconds; `undefined` if this one may be attempted. */
  private blockedUntil({ state }: EndpointTarget): number | undefined {
    const now = this.options.clock.now();
    return state.pausedUntil > now ? state.pausedUntil : state.circuit.admit(now);
  }

  private async attempt(
    delivery: WebhookDelivery,
    target: EndpointTarget,
    attempt: number,
  ): Promise<MadeAttempt> {
    try {
      return await this.sender.attempt(delivery, target, attempt);
    } catch (error) {
      target.state.circuit.abstain(this.options.clock.now());
      this.reporter.attemptFailed(delivery, error);
      throw error;
    }
  }

  private async giveUp(
    delivery: WebhookDelivery,
    reason: FailureReason,
    attempt: number,
  ): Promise<DeliveryOutcome> {
    const outcome = { type: 'dead', reason, attempts: attempt - 1 } as const;
    this.reporter.gaveUp(delivery, outcome);
    return this.finish({ delivery, attempt, outcome });
  }

  /** Publishes the outcome. The delivery log comes before the queue: what the queue has recorded, no crash can unlog. */
  private async finish(report: DeliveryReport): Promise<DeliveryOutcome> {
    this.reporter.finished(report);
    for (const listener of this.listeners) {
      try {
        listener(report);
      } catch (error) {
        // Rethrown, it would repeat an attempt whose outcome is known.
        this.reporter.listenerFailed(report, error);
      }
    }
    await this.log.attempted(report);
    return report.outcome;
  }

  /** Updates the endpoint's circuit with the result, and disables an endpoint that is gone or has failed for too long. */
  private async judgeEndpoint(
    target: EndpointTarget,
    delivery: WebhookDelivery,
    result: AttemptResult,
  ): Promise<void> {
    const now = this.options.clock.now();
    const { circuit } = target.state;
    const change = isEndpointVerdict(result)
      ? circuit.record(result.outcome !== 'acknowledged', now)
      : circuit.abstain(now);
    if (change !== undefined) this.reporter.circuitChanged(change, target, delivery, result);
    if (result.statusCode === GONE) {
      await this.disable(target, { at: now, reason: 'gone' }, delivery, result);
    } else if (this.hasFailedTooLong(target, now)) {
      await this.disable(target, { at: now, reason: 'failing' }, delivery, result);
    }
  }

  private async disable(
    target: EndpointTarget,
    disabled: EndpointDisabled,
    delivery: WebhookDelivery,
    result: AttemptResult,
  ): Promise<void> {
    // A URL that a caller passed is no endpoint: it is tried again when a caller passes it again.
    if (target.endpointId === undefined || isDisabled(target)) return;
    target.state.disabled = disabled;
    this.reporter.endpointDisabled(target, disabled, delivery, result);
    await this.endpoints.keepDisabled(target, disabled);
  }

  /** A URL cannot be disabled, so its deliveries would wait forever: they are given up until a trial succeeds. */
  private isAbandonedUrl(target: EndpointTarget): boolean {
    return (
      target.endpointId === undefined && this.hasFailedTooLong(target, this.options.clock.now())
    );
  }

  private hasFailedTooLong({ state }: EndpointTarget, now: number): boolean {
    const { failingSince } = state.circuit;
    return failingSince !== undefined && now - failingSince >= this.options.disableAfter;
  }

  /** A received event in this queue was acknowledged and must not be lost; its receiver's queue needs another name. */
  private deferReceived(delivery: WebhookDelivery): DeliveryOutcome {
    this.reporter.queueShared(delivery);
    return { type: 'defer', at: this.options.clock.now() + OVERLOAD_WAIT };
  }
}

/** Failures on this side: no key, a key service that is down, our own shutdown. */
const LOCAL_FAILURES: ReadonlySet<FailureReason> = new Set([
  'aborted',
  'signing_failed',
  'no_signing_key',
]);

/** Whether a result says anything about the endpoint. A local failure does not; nor does 409, an endpoint at work. */
function isEndpointVerdict(result: AttemptResult): boolean {
  if (result.outcome === 'acknowledged') return true;
  return (
    result.outcome === 'failed' &&
    !LOCAL_FAILURES.has(result.reason) &&
    result.statusCode !== CONFLICT
  );
}
