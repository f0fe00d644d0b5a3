import { AsyncResource } from 'node:async_hooks';
import { waitUntil, type WebhookClock } from '../clock/webhook-clock.js';
import {
  currentLimits,
  type EndpointRegistry,
  type RegisteredEndpoint,
  isDisabled,
  pausedSince,
} from '../endpoints/endpoint.registry.js';
import type {
  DeliveryAttempt,
  FailureReason,
  OutgoingDelivery,
  ReceivedDelivery,
  DeliveryOutcome,
  DeliveryRun,
} from '../queue/webhook-delivery.js';
import { runObservers, type WebhookQueue } from '../queue/webhook-queue.js';
import { type Attempt, type AttemptResult, concernsEndpoint } from '../sending/attempt-result.js';
import type { EndpointDisabled } from '../sending/endpoint.js';
import { decideRetry, OVERLOAD_WAIT, type RetryDecision } from '../sending/retry-policy.js';
import type { WebhookSender } from '../sending/webhook.sender.js';
import type { WebhookReceipt } from '../token/webhook-receipt.js';
import { observeAttempt } from './delivery.channels.js';
import type { DeliveryReporter } from './delivery.reporter.js';

const GONE = 410;

/**
 * Milliseconds until a delivery to a paused endpoint looks again whether it was resumed: as long as the pause has lasted,
 * within these bounds. Resuming makes it due at once; this is for a process that ends before it has.
 */
const FIRST_PAUSE_CHECK = 60_000;
/** Also for an endpoint that has asked to wait, which may be enabled meanwhile, or answer another process. */
const LAST_PAUSE_CHECK = 10 * 60_000;

/**
 * Milliseconds between two looks for an endpoint that this process does not know, and the age of a delivery at which it is given
 * up: while a new version is rolled out, the old one gets deliveries of endpoints that only the configuration of the new one has.
 */
const UNKNOWN_CHECK = 30_000;
const UNKNOWN_FOR = 15 * 60_000;

/** One run of a delivery, with what only this process knows of it. */
export interface OutgoingRun extends DeliveryRun {
  readonly delivery: OutgoingDelivery;
  /** Creates the receipt of the last request; absent if no request was made. */
  readonly receipt?: (() => WebhookReceipt) | undefined;
}

type RunListener = (run: OutgoingRun) => void;

/** Durations in milliseconds. */
export interface DelivererOptions {
  readonly clock: WebhookClock;
  /** An endpoint that fails every attempt for this long is disabled. */
  readonly disableAfter: number;
}

/** Takes each due delivery of the queue through one attempt to an outcome. */
export class WebhookDeliverer {
  private readonly listeners: RunListener[] = [];
  /** The async context of start-up: a call of `publish` that starts the queue must not pass its own to the deliveries. */
  private readonly background = new AsyncResource('WebhookPublisher');
  private started: Promise<void> | undefined;
  /** Pending writes to the endpoint store. */
  private readonly disabling = new Set<Promise<void>>();

  constructor(
    private readonly options: DelivererOptions,
    private readonly queue: WebhookQueue,
    private readonly endpoints: EndpointRegistry,
    private readonly sender: WebhookSender,
    private readonly reporter: DeliveryReporter,
  ) {}

  /** Calls the listener with every run, before the queue records it. */
  onRun(listener: RunListener): void {
    this.listeners.push(listener);
  }

  /** Starts to consume the queue, once; after a failure the next call tries again. */
  start(): Promise<void> {
    this.started ??= this.background.runInAsyncScope(this.consume, this).catch((error: unknown) => {
      this.started = undefined;
      throw error;
    });
    return this.started;
  }

  /** Resolves once the store has every endpoint that was disabled so far, or at the deadline (epoch milliseconds). */
  async settle(deadline: number): Promise<void> {
    await waitUntil(this.options.clock, deadline, Promise.all(this.disabling));
  }

  private async consume(): Promise<void> {
    await this.queue.consume((delivery, attempt) =>
      delivery.received === undefined
        ? this.deliver(delivery, attempt)
        : this.deferReceived(delivery),
    );
  }

  /**
   * Finds the endpoint, respects what holds it up, attempts, decides, and reports. The queue records what is returned.
   *
   * @throws if the attempt cannot be made now; the queue then repeats it
   */
  private async deliver(delivery: OutgoingDelivery, number: number): Promise<DeliveryRun> {
    const endpoint = await this.endpointOf(delivery);
    if (endpoint === undefined) {
      const outcome = outcomeToStore(delivery, this.outcomeWithoutEndpoint(delivery, number));
      return this.report({ delivery, outcome });
    }
    const early = this.outcomeWithoutAttempt(delivery, endpoint, number);
    if (early !== undefined) {
      const outcome = outcomeToStore(delivery, early, endpoint);
      return this.report({ delivery, outcome, limits: currentLimits(endpoint) }, endpoint);
    }

    const attempt = await this.attempt(delivery, endpoint, number);
    const { result, receipt, profile } = attempt;
    if (result.verdict === 'acknowledged' && profile !== undefined) {
      endpoint.state.noteAcknowledged(profile, this.options.clock.now());
    }
    const { outcome: decided, overloadedUntil } = this.decide(endpoint, result);
    const current = await this.endpointAfter(decided, delivery, endpoint);
    const outcome = outcomeToStore(delivery, decided, current);
    const stored = attemptToStore(attempt, outcome);
    const run = this.report(
      { delivery, outcome, attempt: stored, overloadedUntil, receipt },
      endpoint,
    );
    // Last: the decision above counts the failures before this one.
    this.judgeEndpoint(endpoint, delivery, result);
    // Not of the version that was looked up: it may have been changed during the attempt.
    const latest = this.endpoints.latest(endpoint);
    return latest === undefined ? run : { ...run, limits: currentLimits(latest) };
  }

  private async endpointOf(delivery: OutgoingDelivery): Promise<RegisteredEndpoint | undefined> {
    try {
      const endpoint = await this.endpoints.ofDelivery(delivery);
      // Configured endpoints and URLs need no store, so they say nothing about it.
      if (endpoint === undefined || endpoint.stored !== undefined) this.reporter.lookupSucceeded();
      return endpoint;
    } catch (error) {
      // A failed lookup says nothing about the endpoint: the queue repeats the attempt.
      this.reporter.lookupFailed(delivery, error);
      throw error;
    }
  }

  /**
   * The endpoint that says whether a dead delivery blocks its key: it may have been changed or deleted during the attempt, by another
   * process too.
   */
  private async endpointAfter(
    outcome: DeliveryOutcome,
    delivery: OutgoingDelivery,
    endpoint: RegisteredEndpoint,
  ): Promise<RegisteredEndpoint | undefined> {
    if (outcome.type !== 'dead' || delivery.orderingKey === undefined) return endpoint;
    // The result of the attempt must be recorded, also if the store fails.
    return this.endpoints.ofDelivery(delivery).catch(() => endpoint);
  }

  private outcomeWithoutEndpoint(delivery: OutgoingDelivery, number: number): DeliveryOutcome {
    const now = this.options.clock.now();
    const reason = 'unknown_endpoint';
    if (isExpired(delivery, now)) return deadWithoutAttempt('expired', number);
    if (now - delivery.createdAt >= UNKNOWN_FOR) return deadWithoutAttempt(reason, number);
    return { type: 'defer', at: now + UNKNOWN_CHECK, reason };
  }

  /**
   * Whether the delivery has expired, or something holds it up: a disabled or paused endpoint, an overloaded receiver, an open circuit.
   *
   * @returns `undefined` if the delivery may be attempted now
   */
  private outcomeWithoutAttempt(
    delivery: OutgoingDelivery,
    endpoint: RegisteredEndpoint,
    number: number,
  ): DeliveryOutcome | undefined {
    const now = this.options.clock.now();
    if (isExpired(delivery, now)) return deadWithoutAttempt('expired', number);
    if (isDisabled(endpoint)) return deadWithoutAttempt('endpoint_disabled', number);
    const pausedAt = pausedSince(endpoint);
    if (pausedAt !== undefined) {
      const wait = Math.min(Math.max(now - pausedAt, FIRST_PAUSE_CHECK), LAST_PAUSE_CHECK);
      return { type: 'defer', at: now + wait, reason: 'endpoint_paused' };
    }
    const { overload, circuit } = endpoint.state;
    const overloadedUntil = overload.until(now);
    const isOverloaded = overloadedUntil > now;
    const blockedUntil = isOverloaded ? overloadedUntil : circuit.admit(now);
    if (blockedUntil === undefined) return undefined;
    // A URL cannot be disabled, so its deliveries would wait forever: they are given up until a trial succeeds.
    const isAbandoned = endpoint.endpointId === undefined && this.hasFailedTooLong(endpoint, now);
    if (isAbandoned) return deadWithoutAttempt('endpoint_disabled', number);
    // The failure of its own last attempt says more.
    const reason = isOverloaded ? 'endpoint_overloaded' : 'circuit_open';
    const at = Math.min(blockedUntil, now + LAST_PAUSE_CHECK);
    return { type: 'defer', at, reason: number === 1 ? reason : undefined };
  }

  private async attempt(
    delivery: OutgoingDelivery,
    endpoint: RegisteredEndpoint,
    number: number,
  ): Promise<Attempt> {
    const { clock } = this.options;
    const facts = { attempt: number, ageMs: clock.now() - delivery.createdAt };
    try {
      return await observeAttempt(delivery, endpoint, facts, (tracing) =>
        this.sender.attempt(delivery, endpoint, number, tracing),
      );
    } catch (error) {
      endpoint.state.circuit.abstain(clock.now());
      this.reporter.attemptFailed(delivery, error);
      throw error;
    }
  }

  private decide({ state, retry }: RegisteredEndpoint, result: AttemptResult): RetryDecision {
    const now = this.options.clock.now();
    const { failuresInRow } = state.circuit;
    const decision = decideRetry(retry, result, now, Math.random(), failuresInRow);
    if (decision.overloadedUntil !== undefined) {
      state.overload.extend(decision.overloadedUntil, now);
    }
    return decision;
  }

  /** Reports a run before the queue records it. */
  private report(run: OutgoingRun, endpoint?: RegisteredEndpoint): DeliveryRun {
    this.reporter.ended(run, endpoint?.label ?? `endpoint "${run.delivery.endpointId}"`);
    for (const observe of runObservers) observe({ ...run, consumer: this });
    for (const listener of this.listeners) {
      try {
        listener(run);
      } catch (error) {
        // Rethrown, it would repeat an attempt whose outcome is known.
        this.reporter.listenerFailed(run, error);
      }
    }
    const { outcome, attempt, limits, overloadedUntil } = run;
    return { outcome, attempt, limits, overloadedUntil };
  }

  /** Updates the endpoint's circuit with the result, and disables an endpoint that is gone or has failed for too long. */
  private judgeEndpoint(
    endpoint: RegisteredEndpoint,
    delivery: OutgoingDelivery,
    result: AttemptResult,
  ): void {
    const now = this.options.clock.now();
    const { circuit } = endpoint.state;
    if (!concernsEndpoint(result)) return circuit.abstain(now);
    const change = circuit.note(result.verdict !== 'acknowledged', now);
    if (change !== undefined) this.reporter.circuitChanged(change, endpoint, delivery, result);
    if (result.statusCode === GONE) {
      this.disable(endpoint, { at: now, reason: 'gone' }, delivery, result);
    } else if (this.hasFailedTooLong(endpoint, now)) {
      this.disable(endpoint, { at: now, reason: 'failing' }, delivery, result);
    }
  }

  private disable(
    endpoint: RegisteredEndpoint,
    disabled: EndpointDisabled,
    delivery: OutgoingDelivery,
    result: AttemptResult,
  ): void {
    // A URL that a caller passed is no endpoint: it is tried again when a caller passes it again.
    if (endpoint.endpointId === undefined || isDisabled(endpoint)) return;
    endpoint.state.disabled = disabled;
    this.reporter.endpointDisabled(endpoint, disabled, delivery, result);
    // Not awaited: an endpoint store that is slow must not delay the record of the attempt.
    const stored = this.endpoints
      .keepDisabled(endpoint, disabled)
      .finally(() => this.disabling.delete(stored));
    this.disabling.add(stored);
  }

  private hasFailedTooLong({ state }: RegisteredEndpoint, now: number): boolean {
    const failingSince = state.circuit.failingSince(now);
    return failingSince !== undefined && now - failingSince >= this.options.disableAfter;
  }

  /** A received event in this queue was acknowledged and must not be lost; its receiver's queue needs another name. */
  private async deferReceived(delivery: ReceivedDelivery): Promise<DeliveryRun> {
    this.reporter.queueShared(delivery);
    return { outcome: { type: 'defer', at: this.options.clock.now() + OVERLOAD_WAIT } };
  }
}

function isExpired({ expiresAt }: OutgoingDelivery, now: number): boolean {
  return expiresAt !== undefined && now >= expiresAt;
}

/**
 * The outcome as the queue stores it. A delivery that waits is due when it expires at the latest, so that it is given up then. A dead
 * one blocks its ordering key if the endpoint says so.
 */
function outcomeToStore(
  { expiresAt = Infinity, orderingKey }: OutgoingDelivery,
  outcome: DeliveryOutcome,
  endpoint?: RegisteredEndpoint,
): DeliveryOutcome {
  if ('at' in outcome) return { ...outcome, at: Math.min(outcome.at, expiresAt) };
  const blocksKey =
    outcome.type === 'dead' && orderingKey !== undefined && endpoint?.onDead === 'block';
  return blocksKey ? { ...outcome, blocksKey } : outcome;
}

/** The attempt as the queue stores it. One that the shutdown aborted is repeated under its number. */
function attemptToStore(
  { result, at, answer, signed }: Attempt,
  outcome: DeliveryOutcome,
): DeliveryAttempt | undefined {
  if (outcome.type === 'defer') return undefined;
  const { attempt, durationMs, method, statusCode } = result;
  const reason = result.verdict === 'acknowledged' ? undefined : result.reason;
  return { attempt, at, durationMs, method, statusCode, reason, answer, signed };
}

function deadWithoutAttempt(reason: FailureReason, attempt: number): DeliveryOutcome {
  return { type: 'dead', reason, attempts: attempt - 1 };
}
