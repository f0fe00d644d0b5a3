import {
  type Attributes,
  type BatchObservableResult,
  diag,
  type Meter,
  type ObservableGauge,
} from '@opentelemetry/api';
import { inTime, SystemClock } from '../clock/webhook-clock.js';
import type { EndpointRegistry } from '../endpoints/endpoint.registry.js';
import {
  type OwnedQueue,
  queuesOf,
  readBacklog,
  type WebhookParts,
} from '../health/webhook-parts.js';

/** Name, unit and description. */
const GAUGES = {
  pending: ['webhook.delivery.pending', '{delivery}', 'Pending deliveries'],
  dead: ['webhook.delivery.dead', '{delivery}', 'Deliveries that were given up'],
  lag: ['webhook.delivery.lag', 's', 'How late the oldest due delivery is'],
  circuits: [
    'webhook.endpoint.circuits',
    '{endpoint}',
    'Endpoints that this process knows, by the state of their circuit breaker',
  ],
  replay: ['webhook.replay.entries', '{entry}', 'Entries of a replay store in memory'],
  queued: ['webhook.queued.pending', '{event}', 'Acknowledged events that are not handled yet'],
  deadLetters: ['webhook.queued.dead', '{event}', 'Acknowledged events that were given up'],
  queuedLag: ['webhook.queued.lag', 's', 'How late the oldest due acknowledged event is'],
} as const;

type Gauge = keyof typeof GAUGES;

/** A value of one webhook module; `undefined` if its source is unavailable. */
interface Reading {
  readonly gauge: Gauge;
  readonly value: number | undefined;
  readonly attributes: Attributes;
}

/** Milliseconds in which a queue must answer, since a scrape waits for all of them. */
const TIME_TO_COUNT = 2_000;
const CLOCK = new SystemClock();

/**
 * The gauges of each application in this process. They share one set of instruments, in which the values of one application would
 * overwrite those of another, so the first one reports the sum.
 */
const running = new WeakMap<Meter, Set<StateGauges>>();

/** Instruments whose values are read when metrics are collected. */
export class StateGauges {
  private readonly gauges: Readonly<Record<Gauge, ObservableGauge>>;
  private readonly observe = async (result: BatchObservableResult): Promise<void> => {
    const all = [...(running.get(this.meter) ?? [])];
    if (all[0] !== this) return;
    const readings = await Promise.all(
      all.flatMap((gauges) => gauges.parts.map(async (part) => gauges.read(part))),
    );
    for (const { gauge, value, attributes } of combined(readings.flat())) {
      if (value !== undefined) result.observe(this.gauges[gauge], value, attributes);
    }
  };

  constructor(
    private readonly meter: Meter,
    private readonly parts: readonly WebhookParts[],
    private readonly countDeliveries: boolean,
  ) {
    this.gauges = Object.fromEntries(
      Object.entries(GAUGES).map(([key, [name, unit, description]]) => [
        key,
        meter.createObservableGauge(name, { unit, description }),
      ]),
    ) as typeof this.gauges;
    running.set(meter, (running.get(meter) ?? new Set()).add(this));
    meter.addBatchObservableCallback(this.observe, Object.values(this.gauges));
  }

  close(): void {
    running.get(this.meter)?.delete(this);
    this.meter.removeBatchObservableCallback(this.observe, Object.values(this.gauges));
  }

  private async read(parts: WebhookParts): Promise<Reading[]> {
    const { receivers, endpoints } = parts;
    const known: Reading[] = endpoints === undefined ? [] : circuits(endpoints);
    for (const { name, replayStore } of receivers.values()) {
      const { size } = replayStore as { readonly size?: unknown };
      const attributes = { 'webhook.receiver': name };
      if (typeof size === 'number') known.push({ gauge: 'replay', value: size, attributes });
    }
    const queues = this.countDeliveries ? queuesOf(parts) : [];
    return [...known, ...(await Promise.all(queues.map(backlogOf))).flat()];
  }
}

/** If a queue is unavailable, only its own metrics get no value. */
async function backlogOf(queue: OwnedQueue): Promise<Reading[]> {
  const { receiver } = queue;
  const attributes: Attributes = receiver === undefined ? {} : { 'webhook.receiver': receiver };
  const gauges: readonly Gauge[] =
    receiver === undefined ? ['pending', 'dead', 'lag'] : ['queued', 'deadLetters', 'queuedLag'];
  let values: readonly number[] = [];
  try {
    const late = (): Error => new Error('no answer in time');
    const read = async () => readBacklog(queue);
    const { pending, dead, lag } = await inTime(CLOCK, TIME_TO_COUNT, read, late);
    values = [pending, dead, lag / 1_000];
  } catch (error) {
    const owner = receiver === undefined ? 'the publisher' : queue.owner;
    diag.warn(`nestjs-webhook-token: the queue of ${owner} could not be read`, error);
  }
  return gauges.map((gauge, index) => ({ gauge, value: values[index], attributes }));
}

function circuits(endpoints: EndpointRegistry): Reading[] {
  const states = endpoints.states();
  return (['closed', 'open', 'trial'] as const).map((state) => ({
    gauge: 'circuits',
    value: states.filter(({ circuit }) => circuit.state === state).length,
    attributes: { 'webhook.circuit.state': state },
  }));
}

/** One reading for each gauge and its attributes, over all webhook modules of the process. */
function combined(readings: readonly Reading[]): Iterable<Reading> {
  const totals = new Map<string, Reading>();
  for (const reading of readings) {
    const key = JSON.stringify([reading.gauge, reading.attributes]);
    const known = totals.get(key);
    totals.set(key, known === undefined ? reading : { ...known, value: total(known, reading) });
  }
  return totals.values();
}

/** `undefined` if a value is missing: a part of the sum would look like all of it. */
function total({ gauge, value: one }: Reading, { value: other }: Reading): number | undefined {
  if (one === undefined || other === undefined) return undefined;
  return gauge === 'lag' || gauge === 'queuedLag' ? Math.max(one, other) : one + other;
}
