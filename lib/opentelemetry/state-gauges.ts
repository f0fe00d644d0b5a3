import {
  type BatchObservableResult,
  diag,
  type Meter,
  type ObservableGauge,
} from '@opentelemetry/api';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import { readBacklog, type WebhookParts } from '../health/webhook-parts.js';

/** Instruments whose values are read when metrics are collected. */
export class StateGauges {
  private readonly pending: ObservableGauge;
  private readonly dead: ObservableGauge;
  private readonly lag: ObservableGauge;
  private readonly circuits: ObservableGauge;
  private readonly replay: ObservableGauge;
  private readonly queued: ObservableGauge;
  private readonly deadLetters: ObservableGauge;
  private readonly observe = async (result: BatchObservableResult): Promise<void> => {
    for (const part of this.parts) await this.observePart(part, result);
  };

  constructor(
    private readonly meter: Meter,
    private readonly parts: readonly WebhookParts[],
    private readonly countDeliveries: boolean,
  ) {
    const gauge = (name: string, unit: string, description: string): ObservableGauge =>
      meter.createObservableGauge(name, { unit, description });
    this.pending = gauge('webhook.delivery.pending', '{delivery}', 'Pending deliveries');
    this.dead = gauge('webhook.delivery.dead', '{delivery}', 'Deliveries that were given up');
    this.lag = gauge('webhook.delivery.lag', 's', 'How late the oldest due delivery is');
    this.circuits = gauge(
      'webhook.endpoint.circuits',
      '{endpoint}',
      'Destinations that this process knows, by the state of their circuit breaker',
    );
    this.replay = gauge('webhook.replay.entries', '{entry}', 'Entries of a replay store in memory');
    this.queued = gauge(
      'webhook.queued.pending',
      '{event}',
      'Acknowledged events that are not handled yet',
    );
    this.deadLetters = gauge(
      'webhook.queued.dead',
      '{event}',
      'Acknowledged events that were given up',
    );
    meter.addBatchObservableCallback(this.observe, this.all);
  }

  close(): void {
    this.meter.removeBatchObservableCallback(this.observe, this.all);
  }

  private get all(): ObservableGauge[] {
    const { pending, dead, lag, circuits, replay, queued, deadLetters } = this;
    return [pending, dead, lag, circuits, replay, queued, deadLetters];
  }

  private async observePart(
    { receivers, publisher, endpoints }: WebhookParts,
    result: BatchObservableResult,
  ): Promise<void> {
    for (const { name, replayStore, queued } of receivers.values()) {
      const { size } = replayStore as { readonly size?: unknown };
      if (typeof size === 'number') {
        result.observe(this.replay, size, { 'webhook.receiver': name });
      }
      if (queued !== undefined) await this.observeQueue(queued.queue, name, result);
    }
    const states = endpoints?.states() ?? [];
    for (const state of endpoints === undefined ? [] : (['closed', 'open', 'trial'] as const)) {
      const count = states.filter(({ circuit }) => circuit.state === state).length;
      result.observe(this.circuits, count, { 'webhook.circuit.state': state });
    }
    if (publisher === undefined || !this.countDeliveries) return;
    await this.reading('queue of the publisher', async () => {
      const backlog = await readBacklog(publisher);
      result.observe(this.pending, backlog.pending);
      result.observe(this.dead, backlog.dead);
      result.observe(this.lag, backlog.lag / 1_000);
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
      result.observe(this.queued, pending, { 'webhook.receiver': receiver });
      result.observe(this.deadLetters, dead, { 'webhook.receiver': receiver });
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
