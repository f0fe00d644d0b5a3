import type { WebhookClock } from '../clock/webhook-clock.js';
import { errorName } from '../errors/webhook.error.js';
import type { OutgoingDelivery, ReceivedDelivery } from '../queue/webhook-delivery.interface.js';
import type { DeliveryOutcome } from '../queue/webhook-queue.js';
import type { AttemptResult } from '../sending/attempt-result.js';
import type { EndpointDisabled } from '../sending/endpoint.js';
import { PublisherLog } from '../signing/publisher-log.js';
import { deliveryEvents } from './delivery.channels.js';
import type {
  WebhookDeliveryEvent,
  WebhookDeliveryEvents,
  WebhookDeliveryEventType,
} from './webhook-delivery.events.js';
import type { DeliveryReport } from './webhook.deliverer.js';
import type { EndpointTarget } from '../endpoints/stored-targets.js';

const DAY = 86_400_000;

/** Reports deliveries to the log and to {@link WebhookDeliveryEvents}. Nothing it does can change an outcome. */
export class DeliveryReporter {
  private readonly logger = new PublisherLog();
  private storeOutageLogged = false;

  constructor(
    private readonly events: WebhookDeliveryEvents,
    private readonly options: { readonly clock: WebhookClock; readonly disableAfter: number },
  ) {}

  attempted({ label }: EndpointTarget, { delivery, outcome, result }: DeliveryReport): void {
    if (outcome.type === 'dead') this.logDead(delivery, label, outcome);
    if (outcome.type !== 'retry') return;
    const { id, event } = delivery;
    this.logger.debug(
      () =>
        `Delivery ${id} of "${event}" to ${label}: attempt ${result?.attempt} failed (${outcome.reason}); next attempt at ${new Date(outcome.at).toISOString()}`,
    );
  }

  /** No attempt was made, and none will be. */
  gaveUp(delivery: OutgoingDelivery, outcome: Extract<DeliveryOutcome, { type: 'dead' }>): void {
    this.logDead(delivery, `endpoint "${delivery.endpointId}"`, outcome);
  }

  finished({ delivery, outcome, result }: DeliveryReport): void {
    const attempts = result?.attempt ?? 0;
    switch (outcome.type) {
      case 'delivered':
        return this.emit('delivered', delivery, { attempts, result });
      case 'retry': {
        const { reason } = outcome;
        const nextAttemptAt = new Date(outcome.at);
        return this.emit('retry-scheduled', delivery, { attempts, result, reason, nextAttemptAt });
      }
      case 'dead': {
        const { reason } = outcome;
        const type = reason === 'destination_blocked' ? 'destination-blocked' : 'exhausted';
        return this.emit(type, delivery, { attempts: outcome.attempts, result, reason });
      }
      case 'defer':
        return undefined;
    }
  }

  circuitChanged(
    change: 'opened' | 'closed',
    { label }: EndpointTarget,
    delivery: OutgoingDelivery,
    result: AttemptResult,
  ): void {
    if (change === 'opened') {
      this.logger.warn(
        () => `${label} keeps failing; its deliveries are paused until a trial succeeds.`,
      );
    }
    this.emit(`circuit-${change}`, delivery, { attempts: result.attempt, result });
  }

  endpointDisabled(
    { label, stored }: EndpointTarget,
    { reason }: EndpointDisabled,
    delivery: OutgoingDelivery,
    result: AttemptResult,
  ): void {
    const days = Math.floor(this.options.disableAfter / DAY);
    const why =
      reason === 'gone' ? 'answered 410 Gone' : `has failed every attempt for ${days} days`;
    const remedy =
      stored === undefined
        ? 'remove it from the configuration, or restart to try it again'
        : 'enable it once it works again';
    this.logger.warn(() => `${label} ${why} and was disabled; ${remedy}.`);
    this.emit('endpoint-disabled', delivery, { attempts: result.attempt, result });
  }

  /** Logs only the first failure of an outage. */
  lookupFailed({ id }: OutgoingDelivery, error: unknown): void {
    if (this.storeOutageLogged) return;
    this.storeOutageLogged = true;
    const name = errorName(error);
    this.logger.error(
      () =>
        `Delivery ${id}: its endpoint could not be looked up (${name}); deliveries are retried until the endpoint store answers.`,
    );
  }

  lookupSucceeded(): void {
    this.storeOutageLogged = false;
  }

  attemptFailed({ id }: OutgoingDelivery, error: unknown): void {
    // The name only: the message may quote the token or the payload.
    const name = errorName(error);
    this.logger.error(
      () => `Delivery ${id}: attempt failed before the request was sent (${name}); retrying.`,
    );
  }

  listenerFailed({ delivery }: DeliveryReport, error: unknown): void {
    const name = errorName(error);
    this.logger.error(() => `Delivery ${delivery.id}: a listener of its outcome failed (${name}).`);
  }

  queueShared({ id }: ReceivedDelivery): void {
    this.logger.error(
      () =>
        `The publisher's queue holds the received event ${id}; give the queues of publisher and receiver different names.`,
    );
  }

  private logDead(
    { id, event }: OutgoingDelivery,
    label: string,
    { attempts, reason }: Extract<DeliveryOutcome, { type: 'dead' }>,
  ): void {
    this.logger.warn(
      () =>
        `Delivery ${id} of "${event}" to ${label} is dead after ${attempts} attempts: ${reason}`,
    );
  }

  private emit(
    type: WebhookDeliveryEventType,
    { id, eventId, event, endpointId, tenant }: OutgoingDelivery,
    facts: Pick<WebhookDeliveryEvent, 'attempts' | 'reason' | 'nextAttemptAt'> & {
      readonly result: AttemptResult | undefined;
    },
  ): void {
    if (!this.events.hasSubscribers && !deliveryEvents.hasSubscribers) return;
    const { result, ...others } = facts;
    const emitted: WebhookDeliveryEvent = {
      type,
      at: new Date(this.options.clock.now()),
      deliveryId: id,
      eventId,
      event,
      ...(endpointId !== undefined && { endpointId }),
      ...(tenant !== undefined && { tenant }),
      ...(result?.statusCode !== undefined && { statusCode: result.statusCode }),
      ...others,
    };
    deliveryEvents.publish(emitted);
    try {
      this.events.emit(emitted);
    } catch {
      // rxjs reports errors of subscribers asynchronously.
    }
  }
}
