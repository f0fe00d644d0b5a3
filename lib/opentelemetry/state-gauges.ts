import {
  type BatchObservableResult,
  diag,
  type Meter,
  type ObservableGauge,
} from '@opentelemetry/api';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import { readBacklog, type WebhookParts } from '../health/webhook-parts.js';

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
} as const;

/** Instruments whose values are read when metrics are collected. */
export class StateGauges {
  private readonly gauges: Readonly<Record<keyof typeof GAUGES, ObservableGauge>>;
  private readonly observe = async (result: BatchObservableResult): Promise<void> => {
    for (const part of this.parts) await this.observePart(part, result);
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
    meter.addBatchObservableCallback(this.observe, Object.values(this.gauges));
  }

  close(): void {
    this.meter.removeBatchObservableCallback(this.observe, Object.values(this.gauges));
  }

  private async observePart(
    { receivers, publisher, endpoints }: WebhookParts,
    result: BatchObservableResult,
  ): Promise<void> {
    for (const { name, replayStore, queued } of receivers.values()) {
      const { size } = replayStore as { readonly size?: unknown };
      if (typeof size === 'number') {
        result.observe(this.gauges.replay, size, { 'webhook.receiver': name });
      }
      if (queued !== undefined) await this.observeQueue(queued.queue, name, result);
    }
    const states = endpoints?.states() ?? [];
    for (const state of endpoints === undefined ? [] : (['closed', 'open', 'trial'] as const)) {
      const count = states.filter(({ circuit }) => circuit.state === state).length;
      result.observe(this.gauges.circuits, count, { 'webhook.circuit.state': state });
    }
    if (publisher === undefined || !this.countDeliveries) return;
    await this.reading('queue of the publisher', async () => {
      const backlog = await readBacklog(publisher);
      result.observe(this.gauges.pending, backlog.pending);
      result.observe(this.gauges.dead, backlog.dead);
      result.observe(this.gauges.lag, backlog.lag / 1_000);
    });
  }

  private async observeQueue(
    queue: WebhookQueue,
    receiver: string,
    result: BatchObservableResult,
  ): Promise<void> {
    if (!this.countDeliveries) return;
    await this.reading(`queue of receiver "${receiver}"`, async () => {
      const [counts] = await queue.counts({ receiver, unfinished: true });
      const { pending, dead } = counts ?? { pending: 0, dead: 0 };
      result.observe(this.gauges.queued, pending, { 'webhook.receiver': receiver });
      result.observe(this.gauges.deadLetters, dead, { 'webhook.receiver': receiver });
    });
  }

  /** A source that is unavailable leaves a gap in its own metrics only. */
  private async reading(what: string, read: () => Promise<void>): Promise<void> {
    try {
      await read();
    } catch (error) {
      diag.warn(`nestjs-webhook-token: the ${what} could not be read`, error);
    }
  }
}
