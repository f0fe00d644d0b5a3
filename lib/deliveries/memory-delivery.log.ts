import { WebhookConfigurationError } from '../errors/webhook.error.js';
import { ConfigurationFaults } from '../options/configuration-faults.js';
import type { EnqueuedDelivery } from '../queue/webhook-queue.js';
import type { MaybePromise } from '../token/maybe-promise.js';
import type { FailureReason } from '../queue/failure-reason.js';
import type { OutgoingDelivery } from '../queue/webhook-delivery.interface.js';
import {
  type DeliveryChange,
  type DeliveryCounts,
  type DeliveryFilter,
  DeliveryLog,
  type DeliveryPageRequest,
  type DeliveryStatus,
  type LoggedAttempt,
  type LoggedDelivery,
} from './delivery-log.js';

/** The members of a stored delivery that filters and counts read. */
interface FilterFacts {
  readonly delivery: OutgoingDelivery;
  readonly status: DeliveryStatus;
  readonly nextAttemptAt?: number | undefined;
}

function matchesFilter(
  { delivery, status, nextAttemptAt = Infinity }: FilterFacts,
  filter: DeliveryFilter,
): boolean {
  const { since = -Infinity, until = Infinity, dueBefore } = filter;
  return (
    matchesMember(filter.tenant, delivery.tenant) &&
    matchesMember(filter.endpointId, delivery.endpointId) &&
    matchesMember(filter.eventId, delivery.eventId) &&
    matchesMember(filter.event, delivery.event) &&
    matchesMember(filter.status, status) &&
    (filter.unfinished === undefined || status !== 'delivered') &&
    delivery.createdAt >= since &&
    delivery.createdAt < until &&
    (dueBefore === undefined || (status === 'pending' && nextAttemptAt < dueBefore))
  );
}

function matchesMember(wanted: string | undefined, value: string | undefined): boolean {
  return wanted === undefined || wanted === value;
}

/** Orders by `createdAt`, then by id, both descending. */
function newestFirst(
  a: Pick<OutgoingDelivery, 'createdAt' | 'id'>,
  b: Pick<OutgoingDelivery, 'createdAt' | 'id'>,
): number {
  if (a.createdAt !== b.createdAt) return b.createdAt - a.createdAt;
  if (a.id === b.id) return 0;
  return a.id < b.id ? 1 : -1;
}

function isAfter(
  delivery: Pick<OutgoingDelivery, 'createdAt' | 'id'>,
  after: DeliveryPageRequest['after'],
): boolean {
  return after === undefined || newestFirst(after, delivery) < 0;
}

function countDeliveries(deliveries: readonly FilterFacts[]): DeliveryCounts[] {
  const groups = new Map<string, Tally>();
  for (const { delivery, status, nextAttemptAt } of deliveries) {
    const { endpointId, tenant } = delivery;
    const key = JSON.stringify([endpointId ?? null, tenant ?? null]);
    let tally = groups.get(key);
    if (tally === undefined) {
      tally = {
        ...(endpointId !== undefined && { endpointId }),
        ...(tenant !== undefined && { tenant }),
        pending: 0,
        delivered: 0,
        dead: 0,
      };
      groups.set(key, tally);
    }
    tally[status]++;
    if (nextAttemptAt !== undefined) {
      tally.oldestDue = Math.min(tally.oldestDue ?? Infinity, nextAttemptAt);
    }
  }
  return [...groups.values()];
}

type Tally = { -readonly [Name in keyof DeliveryCounts]: DeliveryCounts[Name] };

/** Stored attempts per delivery; repeated redelivery must not fill the memory. */
const MAX_ATTEMPTS = 100;

/** A delivery in memory. */
class StoredDelivery {
  status: DeliveryStatus = 'pending';
  /** Size of the payload and of the answers. */
  bytes: number;
  nextAttemptAt: number | undefined;
  private attempts = 0;
  private reason: FailureReason | undefined;
  private updatedAt: number;
  private made: LoggedAttempt[] | undefined;

  constructor(
    readonly delivery: OutgoingDelivery,
    notBefore: number,
  ) {
    this.bytes = delivery.payload.bytes?.byteLength ?? 0;
    this.nextAttemptAt = notBefore;
    this.updatedAt = delivery.createdAt;
  }

  /** A delivery whose change arrives before it was recorded. */
  static of(change: DeliveryChange): StoredDelivery {
    const known = new StoredDelivery(change.delivery, change.nextAttemptAt ?? change.at);
    known.updatedAt = -Infinity;
    known.apply(change);
    return known;
  }

  apply({ status, attempts, nextAttemptAt, reason, at, made }: DeliveryChange): void {
    if (made !== undefined) this.addAttempt(made);
    if (this.status === 'delivered' || (status === 'pending' && at < this.updatedAt)) return;
    this.status = status;
    this.attempts = attempts;
    this.nextAttemptAt = status === 'pending' ? nextAttemptAt : undefined;
    this.reason = status === 'delivered' ? undefined : (reason ?? this.reason);
    this.updatedAt = at;
  }

  logged(): LoggedDelivery {
    const { delivery, status, attempts, nextAttemptAt, reason, updatedAt } = this;
    return {
      delivery,
      status,
      attempts,
      ...(nextAttemptAt !== undefined && { nextAttemptAt }),
      ...(reason !== undefined && { reason }),
      updatedAt,
    };
  }

  attemptsMade(): readonly LoggedAttempt[] {
    return (this.made ?? []).toSorted((a, b) => a.at - b.at || a.attempt - b.attempt);
  }

  private addAttempt(made: LoggedAttempt): void {
    if (this.made?.some(({ attempt, at }) => attempt === made.attempt && at === made.at)) return;
    this.bytes += answerBytes(made);
    // Most deliveries have one attempt, and an empty array gets memory for 17.
    if (this.made === undefined) this.made = [made];
    else this.made.push(made);
    if (this.made.length > MAX_ATTEMPTS) this.bytes -= answerBytes(this.made.shift()!);
  }
}

function answerBytes({ answer }: LoggedAttempt): number {
  return answer === undefined ? 0 : Buffer.byteLength(answer);
}

/** Limits of the log in memory. */
export interface MemoryDeliveryLogOptions {
  /** Maximum number of delivered deliveries, and also of dead ones; default 1,000. */
  readonly maxFinished?: number | undefined;
  /**
   * Maximum number of pending deliveries; default 10,000. Use `Infinity` with a queue in the same process, which holds and
   * limits them itself.
   */
  readonly maxPending?: number | undefined;
  /** Maximum bytes of payloads and answers; default 16 MiB. Pending deliveries count if `maxPending` is finite. */
  readonly maxBytes?: number | undefined;
}

/**
 * Stores the latest deliveries in this process's memory.
 *
 * If a limit is reached, it evicts the oldest delivered deliveries first, then the oldest dead ones, then the oldest pending
 * ones.
 */
export class MemoryDeliveryLog extends DeliveryLog {
  override readonly durable = false;
  override readonly transactional = false;

  private readonly maxPending: number;
  private readonly maxFinished: number;
  private readonly maxBytes: number;
  private readonly known = new Map<string, StoredDelivery>();
  /** By status, in the order in which they entered it. */
  private readonly byStatus: Readonly<Record<DeliveryStatus, Set<StoredDelivery>>> = {
    pending: new Set(),
    delivered: new Set(),
    dead: new Set(),
  };
  private heldBytes = 0;

  /** @throws {@link WebhookConfigurationError} for a limit that is not a positive whole number */
  constructor(options: MemoryDeliveryLogOptions = {}) {
    super();
    const { maxFinished = 1_000, maxPending = 10_000, maxBytes = 16 * 1024 * 1024 } = options;
    const faults = new ConfigurationFaults('MemoryDeliveryLog');
    for (const [name, bound] of Object.entries({ maxFinished, maxPending, maxBytes })) {
      const isLimit = Number.isSafeInteger(bound) && bound > 0;
      const isNone = name === 'maxPending' && bound === Infinity;
      faults.require(isLimit || isNone, name, 'must be a positive whole number');
    }
    if (faults.all.length > 0) throw new WebhookConfigurationError(faults.all);
    this.maxFinished = maxFinished;
    this.maxPending = maxPending;
    this.maxBytes = maxBytes;
  }

  override record(deliveries: readonly EnqueuedDelivery<OutgoingDelivery>[]): MaybePromise<void> {
    for (const { delivery, notBefore } of deliveries) {
      if (!this.known.has(delivery.id)) this.add(new StoredDelivery(delivery, notBefore));
    }
    this.shrink();
  }

  override change(changes: readonly DeliveryChange[]): MaybePromise<void> {
    for (const change of changes) {
      const known = this.known.get(change.delivery.id);
      if (known === undefined) this.add(StoredDelivery.of(change));
      else this.move(known, change);
    }
    this.shrink();
  }

  override async find(id: string): Promise<LoggedDelivery | undefined> {
    return this.known.get(id)?.logged();
  }

  override async attempts(id: string): Promise<readonly LoggedAttempt[]> {
    return this.known.get(id)?.attemptsMade() ?? [];
  }

  override async list(
    filter: DeliveryFilter,
    { after, limit }: DeliveryPageRequest,
  ): Promise<readonly LoggedDelivery[]> {
    return [...this.known.values()]
      .filter((known) => matchesFilter(known, filter) && isAfter(known.delivery, after))
      .sort((a, b) => newestFirst(a.delivery, b.delivery))
      .slice(0, limit)
      .map((known) => known.logged());
  }

  override async counts(filter: DeliveryFilter): Promise<readonly DeliveryCounts[]> {
    const regardless = { ...filter, status: undefined };
    return countDeliveries(
      [...this.known.values()].filter((known) => matchesFilter(known, regardless)),
    );
  }

  override async prune(
    before: number,
    { tenant }: { readonly tenant?: string | undefined } = {},
  ): Promise<number> {
    const old = [...this.byStatus.delivered, ...this.byStatus.dead].filter(
      (known) => known.delivery.createdAt < before && matchesFilter(known, { tenant }),
    );
    for (const known of old) this.evict(known);
    return old.length;
  }

  private add(known: StoredDelivery): void {
    this.known.set(known.delivery.id, known);
    this.byStatus[known.status].add(known);
    this.heldBytes += this.weightOf(known);
  }

  private move(known: StoredDelivery, change: DeliveryChange): void {
    this.heldBytes -= this.weightOf(known);
    const { status } = known;
    known.apply(change);
    if (known.status !== status) {
      this.byStatus[status].delete(known);
      this.byStatus[known.status].add(known);
    }
    this.heldBytes += this.weightOf(known);
  }

  private evict(known: StoredDelivery): void {
    this.known.delete(known.delivery.id);
    this.byStatus[known.status].delete(known);
    this.heldBytes -= this.weightOf(known);
  }

  /** A payload that the queue in this process holds anyway costs no memory here. */
  private weightOf(known: StoredDelivery): number {
    return known.status === 'pending' && this.maxPending === Infinity ? 0 : known.bytes;
  }

  private shrink(): void {
    const { delivered, dead, pending } = this.byStatus;
    const isWithinLimits =
      delivered.size <= this.maxFinished &&
      dead.size <= this.maxFinished &&
      pending.size <= this.maxPending &&
      this.heldBytes <= this.maxBytes;
    if (isWithinLimits) return;
    this.evictOldest(delivered, () => delivered.size > this.maxFinished);
    this.evictOldest(dead, () => dead.size > this.maxFinished);
    this.evictOldest(pending, () => pending.size > this.maxPending);
    for (const group of [delivered, dead, pending]) {
      this.evictOldest(group, () => this.heldBytes > this.maxBytes);
    }
  }

  private evictOldest(group: Set<StoredDelivery>, isTooMuch: () => boolean): void {
    if (!isTooMuch()) return;
    for (const known of group) {
      this.evict(known);
      if (!isTooMuch()) return;
    }
  }
}
