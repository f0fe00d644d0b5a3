import { type Attributes, type Counter, type Histogram, type Meter } from '@opentelemetry/api';
import type { WebhookDeliveryEvent } from '../deliveries/webhook-delivery.events.js';
import { defined } from '../options/defined.js';

/** Seconds, as the semantic conventions advise for messaging. */
const BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];
/** Verification takes microseconds, unless keys are fetched or a large body is read. */
const FAST_BUCKETS = [0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 1, 5];
/** A delivery may be retried for days. */
const SLOW_BUCKETS = [0.05, 0.1, 0.5, 1, 5, 30, 60, 300, 1_800, 7_200, 28_800, 86_400, 259_200];

/** Different values of one attribute; further ones are reported as `_OTHER`. */
const MAX_VALUES = 100;

/** Limits the different values of an attribute, so that names chosen by others cannot multiply the time series. */
class BoundedValues {
  private readonly known = new Set<string>();

  of(value: string): string {
    if (this.known.has(value)) return value;
    if (this.known.size >= MAX_VALUES) return '_OTHER';
    this.known.add(value);
    return value;
  }
}

/** Attributes whose type of error is bounded. */
function bounded(attributes: Attributes, errors: BoundedValues): Attributes {
  const { 'error.type': error } = attributes;
  return typeof error === 'string' ? { ...attributes, 'error.type': errors.of(error) } : attributes;
}

/** The instruments that operations are recorded with. Durations are passed in milliseconds and recorded in seconds. */
export class WebhookMetrics {
  private readonly receive: Histogram;
  private readonly verify: Histogram;
  private readonly process: Histogram;
  private readonly client: Histogram;
  private readonly delivery: Histogram;
  private readonly outcomes: Counter;
  private readonly events = new BoundedValues();
  private readonly endpoints = new BoundedValues();
  private readonly handlerErrors = new BoundedValues();
  private readonly sendErrors = new BoundedValues();

  constructor(meter: Meter) {
    const seconds = (name: string, description: string, boundaries = BUCKETS): Histogram =>
      meter.createHistogram(name, {
        unit: 's',
        description,
        advice: { explicitBucketBoundaries: boundaries },
      });
    this.receive = seconds(
      'webhook.receive.duration',
      'Duration of received requests, by their answer',
    );
    this.verify = seconds(
      'webhook.verify.duration',
      'Duration of the verification of received requests',
      FAST_BUCKETS,
    );
    this.process = seconds('messaging.process.duration', 'Duration of handlers');
    this.client = seconds(
      'messaging.client.operation.duration',
      'Duration of publishing an event, and of each attempt to send it',
    );
    this.delivery = seconds(
      'webhook.delivery.duration',
      'Time from the publish of an event to its acknowledgement by a receiver',
      SLOW_BUCKETS,
    );
    this.outcomes = meter.createCounter('webhook.delivery.outcomes', {
      unit: '{delivery}',
      description: 'Deliveries that were delivered or given up',
    });
  }

  received(durationMs: number, verificationMs: number, attributes: Attributes): void {
    this.receive.record(durationMs / 1_000, defined(attributes));
    const { 'webhook.receiver': receiver } = attributes;
    this.verify.record(verificationMs / 1_000, defined({ 'webhook.receiver': receiver }));
  }

  handled(durationMs: number, event: string, attributes: Attributes): void {
    const name = { 'messaging.destination.name': this.events.of(event) };
    const all = bounded({ ...attributes, ...name }, this.handlerErrors);
    this.process.record(durationMs / 1_000, defined(all));
  }

  published(durationMs: number, event: string, attributes: Attributes): void {
    const name = { 'messaging.destination.name': this.events.of(event) };
    const all = bounded({ ...attributes, ...name }, this.sendErrors);
    this.client.record(durationMs / 1_000, defined(all));
  }

  attempted(durationMs: number, endpointId: string | undefined, attributes: Attributes): void {
    const id = { 'webhook.endpoint.id': endpointId && this.endpoints.of(endpointId) };
    const all = bounded({ ...attributes, ...id }, this.sendErrors);
    this.client.record(durationMs / 1_000, defined(all));
  }

  delivered(ageMs: number, event: string): void {
    this.delivery.record(ageMs / 1_000, { 'messaging.destination.name': this.events.of(event) });
  }

  ended({ type, reason }: WebhookDeliveryEvent): void {
    if (type === 'delivered') this.outcomes.add(1, { 'webhook.outcome': 'delivered' });
    if (type !== 'exhausted' && type !== 'destination-blocked') return;
    this.outcomes.add(1, { 'webhook.outcome': 'dead', 'error.type': reason });
  }
}
