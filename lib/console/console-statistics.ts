import { Injectable } from '@nestjs/common';
import { DAY } from '../clock/duration.js';
import { WebhookClock } from '../clock/webhook-clock.js';
import type { WebhookDeliveryStats, WebhookDeliveryView } from '../deliveries/delivery-view.js';
import { WebhookDeliveries } from '../deliveries/webhook.deliveries.js';
import { COUNT_GRAIN, type DeliveryCounts } from '../queue/webhook-queue.js';
import type { ConsoleStats, StatsBucket, StatsCounts } from './console-api.js';
import { optional, readEach } from './console-route.js';

/** Milliseconds for which an answer is reused. The page waits longer than this after a change before it loads again. */
const MIN_AGE = 1_000;
/** An answer is reused for so many times as long as it took, so that reads take at most a tenth of a connection. */
const COST_FACTOR = 10;
const MAX_AGE = 60_000;
/** Delivered deliveries whose times are read, of all steps together, and of each step at most. */
const SAMPLES = 1_200;
const MAX_SAMPLE = 100;
const MAX_ENDPOINTS = 100;

type Scope = NonNullable<Parameters<WebhookDeliveries['stats']>[1]>;

interface CachedAnswer {
  /** When it is read again, in epoch milliseconds. */
  until: number;
  readonly value: Promise<unknown>;
}

/** A range of time in steps; times in epoch milliseconds. */
export interface StatsRange {
  readonly from: number;
  readonly to: number;
  readonly step: number;
}

/** A time to delivery, and the number of deliveries that it stands for. */
interface Sample {
  readonly ms: number;
  readonly weight: number;
}

/** The last multiple of {@link COUNT_GRAIN}, for which a queue can count fast. */
export function floorToGrain(time: number): number {
  return Math.floor(time / COUNT_GRAIN) * COUNT_GRAIN;
}

/** As {@link floorToGrain}, the next one. */
export function ceilToGrain(time: number): number {
  return Math.ceil(time / COUNT_GRAIN) * COUNT_GRAIN;
}

/** Counts of deliveries. A store may have to count every delivery, so all readers of about the same time share one answer. */
@Injectable()
export class ConsoleStatistics {
  private readonly cached = new Map<string, CachedAnswer>();

  constructor(
    private readonly deliveries: WebhookDeliveries,
    private readonly clock: WebhookClock,
  ) {}

  /** @returns `undefined` without a publisher */
  async stats(
    filter: { readonly endpointId?: string },
    scope: Scope,
  ): Promise<WebhookDeliveryStats | undefined> {
    return this.shared(['stats', filter, scope], () =>
      optional(() => this.deliveries.stats(filter, scope)),
    );
  }

  /** As {@link stats}, of the deliveries that were recorded within the last 24 hours. */
  async lastDay(scope: Scope): Promise<WebhookDeliveryStats | undefined> {
    const since = new Date(floorToGrain(this.clock.now() - DAY));
    return this.shared(['lastDay', scope], () =>
      optional(() => this.deliveries.stats({ since }, scope)),
    );
  }

  /** Counts and times to delivery, step by step. */
  async series(
    range: StatsRange,
    filter: { readonly endpointId?: string },
    scope: Scope,
  ): Promise<ConsoleStats> {
    return this.shared(['series', range, filter, scope], () =>
      this.readSeries(range, filter, scope),
    );
  }

  /** Reuses the answer of a read until it is too old for what it cost. */
  async shared<T>(identity: unknown, read: () => Promise<T>): Promise<T> {
    const start = this.clock.now();
    for (const [key, { until }] of this.cached) {
      if (start >= until || until - start > MAX_AGE) this.cached.delete(key);
    }
    const key = JSON.stringify(identity);
    const found = this.cached.get(key);
    if (found !== undefined) return found.value as Promise<T>;
    const value = read();
    const answer: CachedAnswer = { until: start + MAX_AGE, value };
    this.cached.set(key, answer);
    try {
      await value;
      const now = this.clock.now();
      const age = Math.min(Math.max(MIN_AGE, (now - start) * COST_FACTOR), MAX_AGE);
      answer.until = now + age - (now - start);
      return await value;
    } catch (error) {
      this.cached.delete(key);
      throw error;
    }
  }

  private async readSeries(
    { from, to, step }: StatsRange,
    filter: { readonly endpointId?: string },
    scope: Scope,
  ): Promise<ConsoleStats> {
    const wanted = { ...filter, since: new Date(from), until: new Date(to) };
    const counts = await this.deliveries.countsByStep(wanted, step, scope);
    const starts = Array.from({ length: Math.ceil((to - from) / step) }, (_, i) => from + i * step);
    const groups = groupBy(counts, ({ at }) => at);
    const byStep = starts.map((at) => sumOf(groups.get(at) ?? []));
    const limit = Math.min(MAX_SAMPLE, Math.ceil(SAMPLES / starts.length));
    const samples = await readEach(starts, async (start, index): Promise<Sample[]> => {
      const { delivered } = byStep[index]!;
      if (delivered === 0) return [];
      const until = new Date(Math.min(start + step, to));
      const part = { ...filter, status: 'delivered' as const, since: new Date(start), until };
      const { deliveries } = await this.deliveries.list(part, { ...scope, limit });
      const weight = delivered / deliveries.length;
      return deliveries.map((one) => ({ ms: timeToDelivery(one), weight }));
    });
    const buckets = byStep.map((sum, index): StatsBucket => {
      const at = new Date(starts[index]!).toISOString();
      return { at, ...sum, ...percentiles(samples[index]!) };
    });
    const total = { ...sumOf(counts), ...percentiles(samples.flat()) };
    return { buckets, total, endpoints: byEndpoint(counts, starts) };
  }
}

function timeToDelivery({ createdAt, updatedAt }: WebhookDeliveryView): number {
  return Math.max(0, updatedAt.getTime() - createdAt.getTime());
}

function sumOf(counts: readonly DeliveryCounts[]): StatsCounts {
  return counts.reduce(
    (sum, { delivered, dead, pending }) => ({
      delivered: sum.delivered + delivered,
      failed: sum.failed + dead,
      pending: sum.pending + pending,
    }),
    { delivered: 0, failed: 0, pending: 0 },
  );
}

function groupBy<Key>(
  counts: readonly DeliveryCounts[],
  keyOf: (one: DeliveryCounts) => Key,
): ReadonlyMap<Key, readonly DeliveryCounts[]> {
  const groups = new Map<Key, DeliveryCounts[]>();
  for (const one of counts) {
    const key = keyOf(one);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [one]);
    else group.push(one);
  }
  return groups;
}

function percentiles(samples: readonly Sample[]): Pick<StatsCounts, 'p50Ms' | 'p95Ms'> {
  if (samples.length === 0) return {};
  const sorted = samples.toSorted((a, b) => a.ms - b.ms);
  const all = sorted.reduce((sum, { weight }) => sum + weight, 0);
  const at = (share: number): number => {
    let passed = 0;
    // Weights are fractions, whose sum may miss the share by a rounding error.
    const reached = sorted.find(({ weight }) => (passed += weight) >= share * all - 1e-6);
    return (reached ?? sorted.at(-1)!).ms;
  };
  return { p50Ms: at(0.5), p95Ms: at(0.95) };
}

function byEndpoint(
  counts: readonly DeliveryCounts[],
  starts: readonly number[],
): ConsoleStats['endpoints'] {
  const groups = groupBy(counts, (one) => JSON.stringify([one.endpointId, one.tenant]));
  const failures = (group: readonly DeliveryCounts[]): number => sumOf(group).failed;
  return [...groups.values()]
    .toSorted((a, b) => failures(b) - failures(a))
    .slice(0, MAX_ENDPOINTS)
    .map((group) => {
      const { endpointId: endpoint, tenant } = group[0]!;
      const places = new Map(group.map((one) => [one.at, one]));
      const row = (state: 'delivered' | 'dead' | 'pending'): number[] =>
        starts.map((at) => places.get(at)?.[state] ?? 0);
      const numbers = { delivered: row('delivered'), failed: row('dead'), pending: row('pending') };
      return { endpoint, tenant, ...numbers };
    });
}
