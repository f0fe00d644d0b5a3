import { DAY, HOUR } from '../clock/duration.js';
import type { RegisteredEndpoint } from '../endpoints/endpoint.registry.js';
import { errorName } from '../errors/webhook.error.js';
import type { OutgoingDelivery, ReceivedDelivery } from '../queue/webhook-delivery.js';
import type { AttemptResult } from '../sending/attempt-result.js';
import type { EndpointDisabled } from '../sending/endpoint.js';
import { PublisherLog } from '../signing/publisher-log.js';
import { deliveryEvents } from './delivery.channels.js';
import type {
  WebhookDeliveryEvent,
  WebhookDeliveryEvents,
  WebhookDeliveryEventType,
} from './webhook-delivery.events.js';
import type { DelivererOptions, OutgoingRun } from './webhook.deliverer.js';

/** Reports deliveries to the log and to {@link WebhookDeliveryEvents}. Nothing it does can change an outcome. */
export class DeliveryReporter {
  private readonly logger = new PublisherLog();

  constructor(
    private readonly events: WebhookDeliveryEvents,
    private readonly options: DelivererOptions,
  ) {}

  /** Reports the end of a run. @param label - of the endpoint */
  ended({ delivery, outcome, attempt }: OutgoingRun, label: string): void {
    const { id, event } = delivery;
    const facts = { attempts: attempt?.attempt ?? 0, statusCode: attempt?.statusCode };
    switch (outcome.type) {
      case 'delivered':
        return this.emit('delivered', delivery, facts);
      case 'retry': {
        const { at, reason } = outcome;
        this.logger.debug(
          () =>
            `Delivery ${id} of "${event}" to ${label}: attempt ${facts.attempts} failed (${reason}); next attempt at ${new Date(at).toISOString()}`,
        );
        const nextAttemptAt = new Date(at);
        return this.emit('retry-scheduled', delivery, { ...facts, reason, nextAttemptAt });
      }
      case 'dead': {
        const { attempts, reason } = outcome;
        this.logger.warn(
          () =>
            `Delivery ${id} of "${event}" to ${label} is dead after ${attempts} attempts: ${reason}`,
        );
        const type = reason === 'destination_blocked' ? 'destination-blocked' : 'exhausted';
        return this.emit(type, delivery, { ...facts, attempts, reason });
      }
      case 'defer':
        return undefined;
    }
  }

  circuitChanged(
    change: 'opened' | 'closed',
    { label }: RegisteredEndpoint,
    delivery: OutgoingDelivery,
    { attempt: attempts, statusCode }: AttemptResult,
  ): void {
    if (change === 'opened') {
      this.logger.warn(
        () => `${label} keeps failing; its deliveries are paused until a trial succeeds.`,
      );
    }
    this.emit(`circuit-${change}`, delivery, { attempts, statusCode });
  }

  endpointDisabled(
    { label, stored }: RegisteredEndpoint,
    { reason }: EndpointDisabled,
    delivery: OutgoingDelivery,
    { attempt: attempts, statusCode }: AttemptResult,
  ): void {
    const { disableAfter } = this.options;
    const [unit, name] = disableAfter % DAY === 0 ? [DAY, 'days'] : [HOUR, 'hours'];
    const time = `${Number((disableAfter / unit).toFixed(1))} ${name}`;
    const why = reason === 'gone' ? 'answered 410 Gone' : `has failed every attempt for ${time}`;
    const remedy =
      stored === undefined
        ? 'remove it from the configuration, or restart to try it again'
        : 'enable it once it works again';
    this.logger.warn(() => `${label} ${why} and was disabled; ${remedy}.`);
    this.emit('endpoint-disabled', delivery, { attempts, statusCode });
  }

  /** Logs only the first failure of an outage. */
  lookupFailed({ id }: OutgoingDelivery, error: unknown): void {
    const name = errorName(error);
    this.logger.once(
      'error',
      'lookup',
      () =>
        `Delivery ${id}: its endpoint could not be looked up (${name}); deliveries are retried until the endpoint store answers.`,
    );
  }

  lookupSucceeded(): void {
    this.logger.recovered('lookup');
  }

  attemptFailed({ id }: OutgoingDelivery, error: unknown): void {
    // The name only: the message may quote the token or the payload.
    const name = errorName(error);
    this.logger.error(
      () => `Delivery ${id}: attempt failed before the request was sent (${name}); retrying.`,
    );
  }

  listenerFailed({ delivery }: OutgoingRun, error: unknown): void {
    const name = errorName(error);
    this.logger.error(() => `Delivery ${delivery.id}: a listener of its outcome failed (${name}).`);
  }

  queueShared({ id }: ReceivedDelivery): void {
    this.logger.error(
      () =>
        `The publisher's queue holds the received event ${id}; give the queues of publisher and receiver different names.`,
    );
  }

  private emit(
    type: WebhookDeliveryEventType,
    { id, eventId, event, endpointId, tenant }: OutgoingDelivery,
    facts: Pick<WebhookDeliveryEvent, 'attempts' | 'statusCode' | 'reason' | 'nextAttemptAt'>,
  ): void {
    if (!this.events.hasSubscribers && !deliveryEvents.hasSubscribers) return;
    const emitted: WebhookDeliveryEvent = {
      type,
      at: new Date(this.options.clock.now()),
      deliveryId: id,
      eventId,
      event,
      endpointId,
      tenant,
      ...facts,
    };
    deliveryEvents.publish(emitted);
    try {
      this.events.emit(emitted);
    } catch {
      // rxjs reports errors of subscribers asynchronously.
    }
  }
}
