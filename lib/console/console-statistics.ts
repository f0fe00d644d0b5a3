import { Injectable } from '@nestjs/common';
import { WebhookClock } from '../clock/webhook-clock.js';
import type { WebhookDeliveryStats } from '../deliveries/delivery-view.js';
import { WebhookDeliveries } from '../deliveries/webhook.deliveries.js';
import { optional } from './console-route.js';

/** Milliseconds for which counts are reused. The page waits longer than this after a change before it loads them. */
const MAX_AGE = 1_000;

type Scope = Parameters<WebhookDeliveries['stats']>[1];

interface CachedStats {
  readonly at: number;
  readonly stats: Promise<WebhookDeliveryStats | undefined>;
}

/** Counts of deliveries. A store may have to count every delivery, so all readers of about the same time share one count. */
@Injectable()
export class ConsoleStatistics {
  private readonly cached = new Map<string, CachedStats>();

  constructor(
    private readonly deliveries: WebhookDeliveries,
    private readonly clock: WebhookClock,
  ) {}

  /** @returns `undefined` without a publisher */
  async stats(
    filter: { readonly endpointId?: string },
    scope: Scope,
  ): Promise<WebhookDeliveryStats | undefined> {
    const now = this.clock.now();
    for (const [key, { at }] of this.cached) {
      if (Math.abs(now - at) >= MAX_AGE) this.cached.delete(key);
    }
    const key = JSON.stringify([filter, scope]);
    const cached = this.cached.get(key) ?? {
      at: now,
      stats: optional(() => this.deliveries.stats(filter, scope)),
    };
    this.cached.set(key, cached);
    try {
      return await cached.stats;
    } catch (error) {
      this.cached.delete(key);
      throw error;
    }
  }
}
