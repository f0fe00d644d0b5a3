import type { AttemptResult, FailureReason } from './attempt/attempt-result.interface.js';
import type { DeliveryOutcome } from './queue/delivery-queue.js';
import type { DeliveryTarget } from './delivery-target.js';
import type { EndpointRegistry } from './endpoint.registry.js';
import type { ResolvedPublisherOptions } from './options/publisher-options.interface.js';
import { PublisherLog } from './publisher-log.js';
import { decideRetry, type RetryDecision } from './attempt/retry-policy.js';
import type { WebhookDelivery } from './queue/webhook-delivery.interface.js';
import type { WebhookSender } from './attempt/webhook.sender.js';

/** What became of a delivery in one run. */
export interface DeliveryReport {
  readonly delivery: WebhookDelivery;
  readonly outcome: DeliveryOutcome;
  /** Absent when no attempt was made. */
  readonly result?: AttemptResult;
}

/** Is told of every run, before the queue records its outcome. */
export type DeliveryListener = (report: DeliveryReport) => void;

/** Takes a delivery from the queue through one attempt to an outcome. */
export class WebhookDeliverer {
  private readonly logger = new PublisherLog();
  private readonly listeners: DeliveryListener[] = [];

  constructor(
    private readonly options: ResolvedPublisherOptions,
    private readonly endpoints: EndpointRegistry,
    private readonly sender: WebhookSender,
  ) {}

  onReport(listener: DeliveryListener): void {
    this.listeners.push(listener);
  }

  async deliver(delivery: WebhookDelivery, attempt: number): Promise<DeliveryOutcome> {
    const target = this.endpoints.targetOf(delivery);
    const made = attempt - 1;
    if (target === undefined) return this.giveUpUnattempted(delivery, 'unknown_endpoint', made);
    if (target.state.disabled) return this.giveUpUnattempted(delivery, 'endpoint_disabled', made);
    const { pausedUntil } = target.state;
    if (pausedUntil > this.options.clock.now()) {
      return this.report({ delivery, outcome: { type: 'defer', at: pausedUntil } });
    }
    const result = await this.attempt(delivery, target, attempt);
    const decision = decideRetry(
      this.options.retry,
      result,
      this.options.clock.now(),
      Math.random(),
    );
    this.learn(target, decision);
    this.log(delivery, target.label, decision.outcome, result);
    return this.report({ delivery, outcome: decision.outcome, result });
  }

  private async attempt(
    delivery: WebhookDelivery,
    target: DeliveryTarget,
    attempt: number,
  ): Promise<AttemptResult> {
    try {
      return await this.sender.attempt(delivery, target, attempt);
    } catch (error) {
      // Its name only: whatever failed here had the token or the payload in its hands.
      const name = error instanceof Error ? error.name : typeof error;
      this.logger.error(
        () => `Delivery ${delivery.id} could not be attempted (${name}); it runs again.`,
      );
      throw error;
    }
  }

  private giveUpUnattempted(
    delivery: WebhookDelivery,
    reason: FailureReason,
    attempts: number,
  ): DeliveryOutcome {
    const outcome = { type: 'dead', reason, attempts } as const;
    this.log(delivery, `endpoint "${delivery.endpointId}"`, outcome);
    return this.report({ delivery, outcome });
  }

  private learn(target: DeliveryTarget, decision: RetryDecision): void {
    const { state } = target;
    if (decision.pauseEndpointUntil !== undefined) {
      state.pausedUntil = Math.max(state.pausedUntil, decision.pauseEndpointUntil);
    }
    // A URL that a caller named is no endpoint: it is asked again when somebody names it again.
    if (decision.disableEndpoint === true && target.endpointId !== undefined && !state.disabled) {
      state.disabled = true;
      this.logger.warn(
        () =>
          `${target.label} answered 410 Gone and is disabled: remove it from the configuration, or restart to try it again.`,
      );
    }
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
    for (const listener of this.listeners) {
      try {
        listener(report);
      } catch (error) {
        // The outcome stands, whatever a listener makes of it: thrown on, it would repeat the attempt.
        const name = error instanceof Error ? error.name : typeof error;
        this.logger.error(() => `A listener failed on delivery ${report.delivery.id} (${name}).`);
      }
    }
    return report.outcome;
  }
}
