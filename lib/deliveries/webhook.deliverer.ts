import { errorName } from '../errors/webhook.error.js';
import type { AttemptResult, MadeAttempt } from '../sending/attempt-result.js';
import { isThenable } from '../token/maybe-promise.js';
import type { FailureReason } from '../queue/failure-reason.js';
import type { DeliveryOutcome } from '../queue/webhook-queue.js';
import {
  isDisabled,
  type DeliveryTarget,
  type EndpointDisabled,
} from '../sending/delivery-target.js';
import type { EndpointRegistry } from '../endpoints/endpoint.registry.js';
import type { ResolvedPublisherOptions } from '../publisher/options/publisher-options.interface.js';
import { OVERLOAD_WAIT } from '../publisher/publisher.constants.js';
import { PublisherLog } from '../sending/publisher-log.js';
import { decideRetry, type RetryDecision } from '../sending/retry-policy.js';
import type { WebhookDelivery } from '../queue/webhook-delivery.interface.js';
import type { WebhookSender } from '../sending/webhook.sender.js';
import type {
  WebhookDeliveryEvent,
  WebhookDeliveryEventType,
  WebhookDeliveryEvents,
} from './webhook-delivery.events.js';

const CONFLICT = 409;
const GONE = 410;

/** What became of a delivery in one run. */
export interface DeliveryReport {
  readonly delivery: WebhookDelivery;
  /** As which attempt it was run; 1 for the first. */
  readonly attempt: number;
  readonly outcome: DeliveryOutcome;
  /** Absent when no attempt was made. */
  readonly result?: AttemptResult;
  /** The same attempt, with what only the delivery log is told. */
  readonly made?: MadeAttempt;
}

/** Is told of every run, before the queue records its outcome. */
type DeliveryListener = (report: DeliveryReport) => void;

/** Takes a delivery from the queue through one attempt to an outcome. */
export class WebhookDeliverer {
  private readonly logger = new PublisherLog();
  private readonly listeners: DeliveryListener[] = [];
  private hasToldOfStore = false;

  constructor(
    private readonly options: ResolvedPublisherOptions,
    private readonly endpoints: EndpointRegistry,
    private readonly sender: WebhookSender,
    private readonly events: WebhookDeliveryEvents,
  ) {}

  onReport(listener: DeliveryListener): void {
    this.listeners.push(listener);
  }

  async deliver(delivery: WebhookDelivery, attempt: number): Promise<DeliveryOutcome> {
    if (delivery.received !== undefined) return this.leaveToReceiver(delivery);
    const found = this.endpoints.targetOf(delivery);
    const target = isThenable(found) ? await this.looked(delivery, found) : found;
    if (target === undefined) return this.giveUpUnattempted(delivery, 'unknown_endpoint', attempt);
    if (isDisabled(target)) return this.giveUpUnattempted(delivery, 'endpoint_disabled', attempt);
    const now = this.options.clock.now();
    const { pausedUntil, circuit } = target.state;
    const waitUntil = pausedUntil > now ? pausedUntil : circuit.admit(now);
    if (waitUntil !== undefined) {
      if (this.hasGivenUp(target, now)) {
        return this.giveUpUnattempted(delivery, 'endpoint_disabled', attempt);
      }
      return this.report({ delivery, attempt, outcome: { type: 'defer', at: waitUntil } });
    }
    const made = await this.attempt(delivery, target, attempt);
    const { result } = made;
    const ended = this.options.clock.now();
    const decision = decideRetry(this.options.retry, result, ended, Math.random());
    this.learn(target, decision);
    this.log(delivery, target.label, decision.outcome, result);
    const outcome = this.report({ delivery, attempt, outcome: decision.outcome, result, made });
    await this.judge(target, delivery, result, ended);
    return outcome;
  }

  /** An event that came in, of a receiver whose queue has the name of this one: it was acknowledged, and must not end here. */
  private leaveToReceiver({ id }: WebhookDelivery): DeliveryOutcome {
    this.logger.error(
      () =>
        `The queue holds the received event ${id}: give the queues of publisher and receiver a name each.`,
    );
    return { type: 'defer', at: this.options.clock.now() + OVERLOAD_WAIT };
  }

  /** A store that is down says nothing of the endpoint: the queue runs the delivery again, and none is given up. */
  private async looked(
    delivery: WebhookDelivery,
    found: Promise<DeliveryTarget | undefined>,
  ): Promise<DeliveryTarget | undefined> {
    try {
      const target = await found;
      this.hasToldOfStore = false;
      return target;
    } catch (error) {
      if (!this.hasToldOfStore) {
        this.hasToldOfStore = true;
        const name = errorName(error);
        this.logger.error(
          () =>
            `The endpoint of delivery ${delivery.id} cannot be looked up (${name}); it runs again, as do all others until the store answers.`,
        );
      }
      throw error;
    }
  }

  private async attempt(
    delivery: WebhookDelivery,
    target: DeliveryTarget,
    attempt: number,
  ): Promise<MadeAttempt> {
    try {
      return await this.sender.attempt(delivery, target, attempt);
    } catch (error) {
      target.state.circuit.abstain(this.options.clock.now());
      // Its name only: whatever failed here had the token or the payload in its hands.
      const name = errorName(error);
      this.logger.error(
        () => `Delivery ${delivery.id} could not be attempted (${name}); it runs again.`,
      );
      throw error;
    }
  }

  private giveUpUnattempted(
    delivery: WebhookDelivery,
    reason: FailureReason,
    attempt: number,
  ): DeliveryOutcome {
    const outcome = { type: 'dead', reason, attempts: attempt - 1 } as const;
    this.log(delivery, `endpoint "${delivery.endpointId}"`, outcome);
    return this.report({ delivery, attempt, outcome });
  }

  private learn(target: DeliveryTarget, decision: RetryDecision): void {
    const { state } = target;
    if (decision.pauseEndpointUntil !== undefined) {
      state.pausedUntil = Math.max(state.pausedUntil, decision.pauseEndpointUntil);
    }
  }

  /** Draws from an attempt what it tells of the endpoint: whether to give it a rest, or to give it up. */
  private judge(
    target: DeliveryTarget,
    delivery: WebhookDelivery,
    result: AttemptResult,
    now: number,
  ): Promise<void> | undefined {
    const { circuit } = target.state;
    const change = tellsOfEndpoint(result)
      ? circuit.record(result.outcome !== 'acknowledged', now)
      : circuit.abstain(now);
    const tell = (type: WebhookDeliveryEventType): void =>
      this.tell(type, delivery, { attempts: result.attempt, result });
    if (change === 'opened') {
      this.logger.warn(() => `${target.label} keeps failing: its deliveries wait until it works.`);
      tell('circuit-opened');
    } else if (change === 'closed') {
      tell('circuit-closed');
    }
    if (result.statusCode === GONE) {
      return this.disable(target, { at: now, reason: 'gone' }, 'answered 410 Gone', tell);
    }
    if (!this.hasFailedForGood(target, now)) return undefined;
    const days = Math.floor(this.options.disableAfter / 86_400_000);
    const why = `has failed every attempt for ${days} days`;
    return this.disable(target, { at: now, reason: 'failing' }, why, tell);
  }

  /** Nobody can disable a URL; what would wait for it for ever gets no further, until a trial succeeds. */
  private hasGivenUp(target: DeliveryTarget, now: number): boolean {
    return target.endpointId === undefined && this.hasFailedForGood(target, now);
  }

  private hasFailedForGood({ state }: DeliveryTarget, now: number): boolean {
    const { failingSince } = state.circuit;
    return failingSince !== undefined && now - failingSince >= this.options.disableAfter;
  }

  private disable(
    target: DeliveryTarget,
    disabled: EndpointDisabled,
    why: string,
    tell: (type: WebhookDeliveryEventType) => void,
  ): Promise<void> | undefined {
    const { state, endpointId, label, stored } = target;
    // A URL that a caller named is no endpoint: it is asked again when somebody names it again.
    if (endpointId === undefined || isDisabled(target)) return undefined;
    state.disabled = disabled;
    const remedy =
      stored === undefined
        ? 'remove it from the configuration, or restart to try it again'
        : 'enable it once it works again';
    this.logger.warn(() => `${label} ${why} and is disabled: ${remedy}.`);
    tell('endpoint-disabled');
    return this.endpoints.keepDisabled(target, disabled);
  }

  private log(
    { id, event }: WebhookDelivery,
    label: string,
    outcome: DeliveryOutcome,
    result?: AttemptResult,
  ): void {
    if (outcome.type === 'dead') {
      this.logger.warn(
        () =>
          `Delivery ${id} of "${event}" to ${label} failed for good after ${outcome.attempts} attempts: ${outcome.reason}`,
      );
    } else if (outcome.type === 'retry') {
      this.logger.debug(
        () =>
          `Delivery ${id} of "${event}" to ${label}, attempt ${result?.attempt}: ${outcome.reason}; next at ${new Date(outcome.at).toISOString()}`,
      );
    }
  }

  private report(report: DeliveryReport): DeliveryOutcome {
    this.tellOutcome(report);
    for (const listener of this.listeners) {
      try {
        listener(report);
      } catch (error) {
        // The outcome stands, whatever a listener makes of it: thrown on, it would repeat the attempt.
        const name = errorName(error);
        this.logger.error(() => `A listener failed on delivery ${report.delivery.id} (${name}).`);
      }
    }
    return report.outcome;
  }

  private tellOutcome({ delivery, outcome, result }: DeliveryReport): void {
    switch (outcome.type) {
      case 'delivered':
        return this.tell('delivered', delivery, { attempts: result?.attempt ?? 0, result });
      case 'retry':
        return this.tell('retry-scheduled', delivery, {
          attempts: result?.attempt ?? 0,
          result,
          reason: outcome.reason,
          nextAttemptAt: new Date(outcome.at),
        });
      case 'dead': {
        const type = outcome.reason === 'destination_blocked' ? outcome.reason : 'exhausted';
        const { attempts, reason } = outcome;
        return this.tell(type === 'exhausted' ? type : 'destination-blocked', delivery, {
          attempts,
          result,
          reason,
        });
      }
      case 'defer':
      // Nothing has happened yet.
    }
  }

  private tell(
    type: WebhookDeliveryEventType,
    { id, eventId, event, endpointId, tenant }: WebhookDelivery,
    facts: Pick<WebhookDeliveryEvent, 'attempts' | 'reason' | 'nextAttemptAt'> & {
      readonly result: AttemptResult | undefined;
    },
  ): void {
    if (!this.events.areHeard) return;
    const { result, ...told } = facts;
    try {
      this.events.tell({
        type,
        at: new Date(this.options.clock.now()),
        deliveryId: id,
        eventId,
        event,
        ...(endpointId !== undefined && { endpointId }),
        ...(tenant !== undefined && { tenant }),
        ...(result?.statusCode !== undefined && { statusCode: result.statusCode }),
        ...told,
      });
    } catch {
      // rxjs reports what a subscriber throws by itself, later; the outcome stands whatever it is.
    }
  }
}

/** What fails on this side: a key service that is down, no key for now, our own shutdown. */
const OUR_OWN: ReadonlySet<FailureReason> = new Set([
  'aborted',
  'signing_failed',
  'no_signing_key',
]);

/** A fault of our own says nothing of the endpoint; 409 says that it is at work. */
function tellsOfEndpoint(result: AttemptResult): boolean {
  if (result.outcome === 'acknowledged') return true;
  return (
    result.outcome === 'failed' && !OUR_OWN.has(result.reason) && result.statusCode !== CONFLICT
  );
}
