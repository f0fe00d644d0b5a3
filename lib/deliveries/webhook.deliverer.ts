import { AsyncResource } from 'node:async_hooks';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { isThenable } from '../token/maybe-promise.js';
import type { FailureReason } from '../queue/failure-reason.js';
import { runObservers } from '../queue/run-observers.js';
import type { OutgoingDelivery, ReceivedDelivery } from '../queue/webhook-delivery.interface.js';
import type { DeliveryOutcome, WebhookQueue } from '../queue/webhook-queue.js';
import type { EndpointRegistry } from '../endpoints/endpoint.registry.js';
import type { AttemptResult, Attempt } from '../sending/attempt-result.js';
import { type EndpointDisabled } from '../sending/endpoint.js';
import { decideRetry, OVERLOAD_WAIT, type RetryPolicy } from '../sending/retry-policy.js';
import type { WebhookSender } from '../sending/webhook.sender.js';
import { observeAttempt } from './delivery.channels.js';
import type { DeliveryLogWriter } from './delivery-log.writer.js';
import type { DeliveryReporter } from './delivery.reporter.js';
import { type EndpointTarget, isDisabled, pausedSince } from '../endpoints/stored-targets.js';

const CONFLICT = 409;
const GONE = 410;

/**
 * Milliseconds until a delivery to a paused endpoint looks again whether it was resumed: as long as the pause has lasted, within
 * these bounds. Resuming makes it due at once; this is for deliveries that the delivery log does not list.
 */
const FIRST_PAUSE_CHECK = 60_000;
const LAST_PAUSE_CHECK = 10 * 60_000;

/** The outcome of one run of a delivery. */
export interface DeliveryReport {
  readonly delivery: OutgoingDelivery;
  /** The number of the attempt; 1 for the first. */
  readonly attempt: number;
  readonly outcome: DeliveryOutcome;
  /** Absent if no attempt was made. */
  readonly result?: AttemptResult;
  /** The same attempt, with details for the delivery log only. */
  readonly made?: Attempt;
}

type DeliveryListener = (report: DeliveryReport) => void;

/** Durations in milliseconds. */
export interface DelivererOptions {
  readonly clock: WebhookClock;
  readonly retry: RetryPolicy;
  /** An endpoint that fails every attempt for this long is disabled. */
  readonly disableAfter: number;
}

/** Takes each due delivery of the queue through one attempt to an outcome. */
export class WebhookDeliverer {
  private readonly listeners: DeliveryListener[] = [];
  /** The async context of start-up, so that reactions to a delivery do not join the transaction of the call that published it. */
  private readonly background = new AsyncResource('WebhookPublisher');
  private started: Promise<void> | undefined;
  private hasStarted = false;

  constructor(
    private readonly options: DelivererOptions,
    private readonly queue: WebhookQueue,
    private readonly endpoints: EndpointRegistry,
    private readonly sender: WebhookSender,
    private readonly log: DeliveryLogWriter,
    private readonly reporter: DeliveryReporter,
  ) {}

  /** Calls the listener with every outcome, before the queue records it. */
  onReport(listener: DeliveryListener): void {
    this.listeners.push(listener);
  }

  /** Whether {@link start} has succeeded. */
  get isStarted(): boolean {
    return this.hasStarted;
  }

  /** Starts to consume the queue, once; after a failure the next call tries again. */
  start(): Promise<void> {
    this.started ??= this.consume().catch((error: unknown) => {
      this.started = undefined;
      throw error;
    });
    return this.started;
  }

  private async consume(): Promise<void> {
    await this.queue.consume((delivery, attempt) =>
      delivery.received === undefined
        ? this.background.runInAsyncScope(this.deliver, this, delivery, attempt)
        : this.deferReceived(delivery),
    );
    this.hasStarted = true;
  }

  /** @throws if the attempt cannot be made now; the queue then repeats it */
  private async deliver(delivery: OutgoingDelivery, attempt: number): Promise<DeliveryOutcome> {
    const found = this.endpoints.targetOf(delivery);
    const target = isThenable(found) ? await this.lookedUp(found, delivery) : found;
    if (target === undefined) return this.giveUp(delivery, 'unknown_endpoint', attempt);
    if (isDisabled(target)) return this.giveUp(delivery, 'endpoint_disabled', attempt);
    const pausedAt = pausedSince(target);
    if (pausedAt !== undefined) return this.waitForResume(delivery, attempt, pausedAt);
    const waitUntil = this.blockedUntil(target);
    if (waitUntil !== undefined) {
      if (this.isAbandonedUrl(target)) return this.giveUp(delivery, 'endpoint_disabled', attempt);
      return this.end({ delivery, attempt, outcome: { type: 'defer', at: waitUntil } });
    }
    const { clock, retry } = this.options;
    const ageMs = clock.now() - delivery.createdAt;
    let made: Attempt;
    try {
      made = await observeAttempt(delivery, target, { attempt, ageMs }, (tracing) =>
        this.sender.attempt(delivery, target, attempt, tracing),
      );
    } catch (error) {
      target.state.circuit.abstain(clock.now());
      this.reporter.attemptFailed(delivery, error);
      throw error;
    }
    const { result } = made;
    const { state } = target;
    const decided = decideRetry(
      retry,
      result,
      clock.now(),
      Math.random(),
      state.circuit.failuresInRow,
    );
    const { outcome, pauseEndpointUntil = 0 } = decided;
    state.pausedUntil = Math.max(state.pausedUntil, pauseEndpointUntil);
    const report = { delivery, attempt, outcome, result, made };
    this.reporter.attempted(target, report);
    const logged = this.finish(report);
    const disabled = this.judgeEndpoint(target, delivery, result);
    if (logged !== undefined || disabled !== undefined) await Promise.all([logged, disabled]);
    return outcome;
  }

  private async waitForResume(
    delivery: OutgoingDelivery,
    attempt: number,
    pausedAt: number,
  ): Promise<DeliveryOutcome> {
    const now = this.options.clock.now();
    const wait = Math.min(Math.max(now - pausedAt, FIRST_PAUSE_CHECK), LAST_PAUSE_CHECK);
    const outcome = { type: 'defer', at: now + wait, reason: 'endpoint_paused' } as const;
    return this.end({ delivery, attempt, outcome });
  }

  private async lookedUp(
    found: Promise<EndpointTarget | undefined>,
    delivery: OutgoingDelivery,
  ): Promise<EndpointTarget | undefined> {
    try {
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

  private async giveUp(
    delivery: OutgoingDelivery,
    reason: FailureReason,
    attempt: number,
  ): Promise<DeliveryOutcome> {
    const outcome = { type: 'dead', reason, attempts: attempt - 1 } as const;
    this.reporter.gaveUp(delivery, outcome);
    return this.end({ delivery, attempt, outcome });
  }

  private async end(report: DeliveryReport): Promise<DeliveryOutcome> {
    await this.finish(report);
    return report.outcome;
  }

  /**
   * Publishes the outcome. The delivery log comes before the queue: what the queue has recorded, no crash can unlog.
   *
   * @returns what to wait for, if the log has to be
   */
  private finish(report: DeliveryReport): Promise<void> | undefined {
    this.reporter.finished(report);
    const statusCode = report.result?.statusCode;
    for (const observe of runObservers) observe({ ...report, consumer: this, statusCode });
    for (const listener of this.listeners) {
      try {
        listener(report);
      } catch (error) {
        // Rethrown, it would repeat an attempt whose outcome is known.
        this.reporter.listenerFailed(report, error);
      }
    }
    return this.log.attempted(report);
  }

  /** Updates the endpoint's circuit with the result, and disables an endpoint that is gone or has failed for too long. */
  private judgeEndpoint(
    target: EndpointTarget,
    delivery: OutgoingDelivery,
    result: AttemptResult,
  ): Promise<void> | undefined {
    const now = this.options.clock.now();
    const { circuit } = target.state;
    const change = isEndpointVerdict(result)
      ? circuit.record(result.outcome !== 'acknowledged', now)
      : circuit.abstain(now);
    if (change !== undefined) this.reporter.circuitChanged(change, target, delivery, result);
    if (result.statusCode === GONE) {
      return this.disable(target, { at: now, reason: 'gone' }, delivery, result);
    }
    if (this.hasFailedTooLong(target, now)) {
      return this.disable(target, { at: now, reason: 'failing' }, delivery, result);
    }
    return undefined;
  }

  private async disable(
    target: EndpointTarget,
    disabled: EndpointDisabled,
    delivery: OutgoingDelivery,
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
  private async deferReceived(delivery: ReceivedDelivery): Promise<DeliveryOutcome> {
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
