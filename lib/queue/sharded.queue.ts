import { hash } from 'node:crypto';
import { SystemClock, type WebhookClock } from '../clock/webhook-clock.js';
import { readOptions } from '../options/read-options.js';
import * as option from '../options/rules.js';
import {
  deliveryLane,
  type DeliveryAttempt,
  type DeliveryLimits,
  type DeliveryRecord,
  type DeliveryRun,
  type WebhookDelivery,
} from './webhook-delivery.js';
import { eachDelivery, newestFirst } from './delivery-list.js';
import {
  checkQueue,
  type DeliveryCountFilter,
  type DeliveryCounts,
  type DeliveryFilter,
  type DeliveryHandler,
  type DeliveryPageRequest,
  type EnqueuedDelivery,
  type EnqueueOptions,
  type ListedDelivery,
  WebhookQueue,
} from './webhook-queue.js';

/**
 * Milliseconds until a delivery that waits for its former shard is checked again: as long as it has waited, within these bounds. Each
 * check uses a token of its endpoint's rate limit.
 */
const FIRST_RECHECK = 1_000;
const LAST_RECHECK = 60_000;
/** Deliveries of one look-up in the former shard. */
const PAGE = 100;

export interface ShardedQueueOptions {
  /** The queues by name. A delivery's queue depends on the names, not on their order: never rename one that is in use. */
  readonly shards: Readonly<Record<string, WebhookQueue>>;
  /** While shards are added or removed; see the guide for the two deployments that this takes. */
  readonly moving?: ShardMove | undefined;
  /** Default: the system clock. */
  readonly clock?: WebhookClock | undefined;
}

/** A change of the shards that deliveries are recorded in. */
interface ShardMove {
  /** Names of the shards before the change. */
  readonly from: readonly string[];
  /** Names of the shards after the change. */
  readonly to: readonly string[];
  /** Which of them new deliveries are recorded in: first `from` in all processes, then `to`. */
  readonly record: 'from' | 'to';
}

const NAMES = option.list(option.text(), 'must be a list of names of shards', { min: 1 });

const OPTIONS = option.object<ShardedQueueOptions>()(
  {
    shards: option.rule<Readonly<Record<string, WebhookQueue>>>(
      (value) =>
        option.isOptions(value) &&
        Object.values(value).length > 0 &&
        Object.values(value).every(isQueue),
      'must be an object of queues by name: { a: new PostgresQueue(…), b: new PostgresQueue(…) }',
    ),
    moving: option.optional(
      option.object<ShardMove>()({ from: NAMES, to: NAMES, record: option.oneOf('from', 'to') }),
    ),
    clock: option.optional(option.CLOCK),
  },
  {
    across({ shards, moving }, at) {
      if (at.has('shards', 'moving') || moving === undefined) return;
      for (const side of ['from', 'to'] as const) {
        const unknown = moving[side].find((name) => !Object.hasOwn(shards, name));
        at.require(
          unknown === undefined,
          `moving.${side}`,
          'must name shards of this queue: keep a queue in "shards" until it is empty',
        );
      }
    },
  },
);

function isQueue(value: unknown): boolean {
  return option.hasMethods(value, ['enqueue', 'consume', 'find', 'stop']);
}

/**
 * Spreads deliveries over several queues, for more of them than one server takes.
 *
 * All deliveries of an endpoint are in one shard, chosen by a stable hash of the endpoint and the names of the shards, so that
 * order by key, fairness and limits hold as in one queue. Another shard takes over an equal part of the endpoints of each, and
 * no others move.
 *
 * ```ts
 * new ShardedQueue({
 *   shards: {
 *     a: new PostgresQueue({ connectionString: process.env.DATABASE_A }),
 *     b: new PostgresQueue({ connectionString: process.env.DATABASE_B }),
 *   },
 * })
 * ```
 *
 * - An event whose endpoints are in several shards is not recorded in one step. If a shard fails, `publish` rejects, and the
 *   others may have recorded it: publish it again with the same `id`, which records what is missing.
 * - It joins no transaction, since a transaction belongs to one database.
 */
export class ShardedQueue extends WebhookQueue {
  override readonly durable: boolean;
  override readonly shared: boolean;
  override readonly transactional = false;

  private readonly shards: ReadonlyMap<string, WebhookQueue>;
  private readonly moving: ShardMove | undefined;
  private readonly clock: WebhookClock;
  /** The shards whose deliveries are consumed. */
  private readonly consumed = new Set<WebhookQueue>();

  /** @throws {@link WebhookConfigurationError} */
  constructor(options: ShardedQueueOptions) {
    super();
    const { shards, moving, clock } = readOptions(OPTIONS, options, 'ShardedQueue');
    this.shards = new Map(Object.entries(shards));
    this.moving = moving;
    this.clock = clock ?? new SystemClock();
    this.durable = this.all.every((shard) => shard.durable);
    this.shared = this.all.some((shard) => shard.shared);
  }

  override async enqueue(
    deliveries: readonly EnqueuedDelivery[],
    { check }: EnqueueOptions = {},
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    const known = await this.findMoved(deliveries);
    const places = placesBy(deliveries, ({ delivery }, place) =>
      known.has(place) ? undefined : this.homeOf(delivery),
    );
    if (check !== undefined) {
      const recorded = await findAt(places, deliveries);
      check(deliveries.map((_, place) => known.get(place) ?? recorded.get(place)));
    }
    await forEach(places, async (shard, own) => {
      const records = await shard.enqueue(own.map((place) => deliveries[place]!));
      own.forEach((place, i) => known.set(place, records[i]));
    });
    return deliveries.map((_, place) => known.get(place));
  }

  override async consume(handler: DeliveryHandler): Promise<void> {
    // A call after one that failed starts the others.
    for (const shard of this.all.filter((one) => !this.consumed.has(one))) {
      await shard.consume(async (delivery, attempt) =>
        (await this.mustWait(shard, delivery)) ? this.later(delivery) : handler(delivery, attempt),
      );
      this.consumed.add(shard);
    }
  }

  override async find(ids: readonly string[]): Promise<readonly (DeliveryRecord | undefined)[]> {
    const found = await this.ask(async (shard) => shard.find(ids));
    return ids.map((_, place) => found.map((records) => records[place]).find(Boolean));
  }

  override async list(
    filter: DeliveryFilter,
    page: DeliveryPageRequest,
  ): Promise<readonly ListedDelivery[]> {
    const lists = await this.ask(async (shard) => shard.list(filter, page));
    return lists
      .flat()
      .toSorted((a, b) => newestFirst(a.delivery, b.delivery))
      .slice(0, page.limit);
  }

  override async attempts(id: string): Promise<readonly DeliveryAttempt[]> {
    return (await this.ask(async (shard) => shard.attempts(id))).flat();
  }

  override async counts(filter: DeliveryCountFilter): Promise<readonly DeliveryCounts[]> {
    const counts = (await this.ask(async (shard) => shard.counts(filter))).flat();
    const groups = new Map<string, DeliveryCounts>();
    // While shards are added, an endpoint may have deliveries in two of them.
    for (const one of counts) {
      const key = JSON.stringify([one.endpointId, one.tenant, one.receiver, one.at]);
      const known = groups.get(key);
      groups.set(key, known === undefined ? one : sumOf(known, one));
    }
    return [...groups.values()];
  }

  override async redeliver(ids: readonly string[]): Promise<readonly string[]> {
    return (await this.ask(async (shard) => shard.redeliver(ids))).flat();
  }

  override async skip(ids: readonly string[]): Promise<readonly string[]> {
    return (await this.ask(async (shard) => shard.skip(ids))).flat();
  }

  override async prune(
    before: number,
    scope?: { readonly tenant?: string | undefined },
  ): Promise<number> {
    return total(await this.ask(async (shard) => shard.prune(before, scope)));
  }

  override async erase(filter: DeliveryFilter): Promise<number> {
    return total(await this.ask(async (shard) => shard.erase(filter)));
  }

  override async limitLane(lane: string, limits: DeliveryLimits): Promise<void> {
    const { from, to } = this.moving ?? { from: undefined, to: undefined };
    const shards = new Set([from, to].map((names) => this.shardOfLane(lane, names)));
    await Promise.all([...shards].map(async (shard) => shard.limitLane?.(lane, limits)));
  }

  override async flush(): Promise<void> {
    await this.ask(async (shard) => shard.flush?.());
  }

  override async check(): Promise<void> {
    await this.ask(checkQueue);
  }

  override async stop(deadline: number): Promise<number> {
    return total(await this.ask(async (shard) => shard.stop(deadline)));
  }

  private get all(): readonly WebhookQueue[] {
    return [...this.shards.values()];
  }

  private async ask<T>(question: (shard: WebhookQueue) => Promise<T>): Promise<T[]> {
    return Promise.all(this.all.map(question));
  }

  /** The shard that new deliveries are recorded in. */
  private homeOf(delivery: WebhookDelivery): WebhookQueue {
    const { moving } = this;
    return this.shardOf(delivery, moving === undefined ? undefined : moving[moving.record]);
  }

  private shardOf(delivery: WebhookDelivery, names?: Iterable<string>): WebhookQueue {
    return this.shardOfLane(deliveryLane(delivery), names);
  }

  /** The highest score wins (rendezvous hashing): another name changes the winner only of the lanes that it wins. */
  private shardOfLane(lane: string, names: Iterable<string> = this.shards.keys()): WebhookQueue {
    let [winner, highest] = ['', ''];
    for (const name of names) {
      const score = hash('sha256', JSON.stringify([name, lane]));
      if (score > highest) [winner, highest] = [name, score];
    }
    return this.shards.get(winner)!;
  }

  /** What is recorded in the other shard of a lane that moves: the same id is one delivery in both. By place. */
  private async findMoved(
    deliveries: readonly EnqueuedDelivery[],
  ): Promise<Map<number, DeliveryRecord | undefined>> {
    const { moving } = this;
    if (moving === undefined) return new Map();
    const elsewhere = moving.record === 'to' ? moving.from : moving.to;
    const places = placesBy(deliveries, ({ delivery }) => {
      const other = this.shardOf(delivery, elsewhere);
      return other === this.homeOf(delivery) ? undefined : other;
    });
    return findAt(places, deliveries);
  }

  /** Whether a keyed delivery has to wait because the former shard of its endpoint still has one of its key. */
  private async mustWait(shard: WebhookQueue, delivery: WebhookDelivery): Promise<boolean> {
    const { moving } = this;
    if (moving === undefined || delivery.orderingKey === undefined) return false;
    const former = this.shardOf(delivery, moving.from);
    if (former === shard) return false;
    return (
      (await holdsKey(former, delivery, { status: 'pending' })) ||
      (await holdsKey(former, delivery, { keyState: 'blocking' }))
    );
  }

  private later({ createdAt }: WebhookDelivery): DeliveryRun {
    const now = this.clock.now();
    const wait = Math.min(Math.max(now - createdAt, FIRST_RECHECK), LAST_RECHECK);
    return { outcome: { type: 'defer', at: now + wait } };
  }
}

/** Whether a shard has such a delivery of the same endpoint or receiver and key. */
async function holdsKey(
  shard: WebhookQueue,
  delivery: WebhookDelivery,
  wanted: Pick<DeliveryFilter, 'status' | 'keyState'>,
): Promise<boolean> {
  const lane =
    delivery.received === undefined
      ? { endpointId: delivery.endpointId, tenant: delivery.tenant }
      : { receiver: delivery.received.receiver };
  for await (const { delivery: other } of eachDelivery(shard, { ...lane, ...wanted }, PAGE)) {
    if (other.orderingKey === delivery.orderingKey) return true;
  }
  return false;
}

/** The places of the deliveries of each shard; those without a shard are left out. */
function placesBy(
  deliveries: readonly EnqueuedDelivery[],
  shardOf: (delivery: EnqueuedDelivery, place: number) => WebhookQueue | undefined,
): Map<WebhookQueue, number[]> {
  const places = new Map<WebhookQueue, number[]>();
  deliveries.forEach((delivery, place) => {
    const shard = shardOf(delivery, place);
    if (shard === undefined) return;
    const own = places.get(shard);
    if (own === undefined) places.set(shard, [place]);
    else own.push(place);
  });
  return places;
}

/** Finds what is recorded of the deliveries at these places. */
async function findAt(
  places: ReadonlyMap<WebhookQueue, readonly number[]>,
  deliveries: readonly EnqueuedDelivery[],
): Promise<Map<number, DeliveryRecord | undefined>> {
  const found = new Map<number, DeliveryRecord | undefined>();
  await forEach(places, async (shard, own) => {
    const records = await shard.find(own.map((place) => deliveries[place]!.delivery.id));
    own.forEach((place, i) => records[i] && found.set(place, records[i]));
  });
  return found;
}

async function forEach<K, V>(
  map: ReadonlyMap<K, V>,
  work: (key: K, value: V) => Promise<void>,
): Promise<void> {
  await Promise.all([...map].map(async ([key, value]) => work(key, value)));
}

function sumOf(one: DeliveryCounts, other: DeliveryCounts): DeliveryCounts {
  const dues = [one.oldestDue, other.oldestDue].filter((due) => due !== undefined);
  return {
    ...one,
    pending: one.pending + other.pending,
    delivered: one.delivered + other.delivered,
    dead: one.dead + other.dead,
    held: (one.held ?? 0) + (other.held ?? 0) || undefined,
    oldestDue: dues.length === 0 ? undefined : Math.min(...dues),
  };
}

function total(numbers: readonly number[]): number {
  return numbers.reduce((sum, one) => sum + one, 0);
}
