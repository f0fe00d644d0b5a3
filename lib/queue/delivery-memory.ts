import { WebhookStoreError } from '../errors/webhook.error.js';
import type {
  DeliveryAttempt,
  DeliveryCountFilter,
  DeliveryCounts,
  DeliveryFilter,
  DeliveryPageRequest,
  DeliveryRecord,
  DeliveryStatus,
  ListedDelivery,
} from './delivery-record.js';
import type { FailureReason } from './failure-reason.js';
import type { PendingDelivery } from './pending-deliveries.js';
import { deliveryLane } from './stored-delivery.js';
import type { WebhookDelivery } from './webhook-delivery.interface.js';
import type { DeliveryRun } from './webhook-queue.js';

/** Stored attempts per delivery. */
const MAX_ATTEMPTS = 20;
/** Estimated bytes of a pending delivery besides its payload. */
const OVERHEAD = 512;
/** The part of all bytes that finished deliveries may take. */
const FINISHED_SHARE = 0.25;
/** The part by which a group may exceed its bound before the oldest are removed, so that each removal is cheap. */
const SLACK = 1 / 8;

/** A delivery in memory. */
export class RememberedDelivery implements PendingDelivery {
  readonly lane: string;
  status: DeliveryStatus = 'pending';
  /** Of its payload and its answers. */
  bytes: number;
  /** How often in a row the handler threw. */
  throws = 0;
  attempts: readonly DeliveryAttempt[] = [];
  private attemptCount = 0;
  private reason: FailureReason | undefined;
  private updatedAt: number;
  private payloadDropped: true | undefined;

  constructor(
    public delivery: WebhookDelivery,
    public due: number,
    public order: number,
  ) {
    this.lane = deliveryLane(delivery);
    this.bytes = delivery.payload.bytes?.byteLength ?? 0;
    this.updatedAt = delivery.createdAt;
  }

  /** The number of its next attempt. */
  get nextAttempt(): number {
    return this.attemptCount + 1;
  }

  get isRestorable(): boolean {
    return this.payloadDropped === undefined;
  }

  record(): DeliveryRecord {
    return { ...this.state(), delivery: this.delivery };
  }

  listed(): ListedDelivery {
    const { payload: _, ...delivery } = this.delivery;
    return { ...this.state(), delivery };
  }

  apply({ outcome, attempt }: DeliveryRun, now: number): void {
    this.throws = 0;
    this.updatedAt = now;
    if (attempt !== undefined) this.addAttempt(attempt);
    switch (outcome.type) {
      case 'delivered':
        this.status = 'delivered';
        this.attemptCount++;
        this.reason = undefined;
        break;
      case 'dead':
        this.status = 'dead';
        this.attemptCount = outcome.attempts;
        this.reason = outcome.reason;
        break;
      case 'retry':
        this.attemptCount++;
        this.reason = outcome.reason;
        this.due = outcome.at;
        break;
      case 'defer':
        this.reason = outcome.reason ?? this.reason;
        this.due = outcome.at;
    }
  }

  /** Makes a dead delivery pending, from the first attempt on. */
  startRound(now: number, order: number): void {
    this.status = 'pending';
    this.attemptCount = 0;
    this.due = now;
    this.order = order;
    this.updatedAt = now;
  }

  /** Drops the payload, and the answers of the attempts. */
  dropPayload(): void {
    this.delivery = {
      ...this.delivery,
      payload: { ...this.delivery.payload, bytes: undefined },
    };
    this.attempts = this.attempts.map((attempt) => ({ ...attempt, answer: undefined }));
    this.bytes = 0;
    this.payloadDropped = true;
  }

  private state(): Omit<DeliveryRecord, 'delivery'> {
    const { status, attemptCount, reason, updatedAt, due, payloadDropped } = this;
    return {
      status,
      attempts: attemptCount,
      nextAttemptAt: status === 'pending' ? due : undefined,
      reason,
      updatedAt,
      payloadDropped,
    };
  }

  private addAttempt(attempt: DeliveryAttempt): void {
    this.bytes += answerBytes(attempt);
    const [oldest] = this.attempts;
    if (this.attempts.length < MAX_ATTEMPTS) this.attempts = [...this.attempts, attempt];
    else {
      this.bytes -= answerBytes(oldest!);
      this.attempts = [...this.attempts.slice(1), attempt];
    }
  }
}

function answerBytes({ answer }: DeliveryAttempt): number {
  return answer === undefined ? 0 : Buffer.byteLength(answer);
}

/** Finished deliveries of one status, in the order in which they finished. */
class FinishedGroup {
  readonly all = new Set<RememberedDelivery>();
  readonly restorable = new Set<RememberedDelivery>();

  add(known: RememberedDelivery): void {
    this.all.add(known);
    if (known.isRestorable) this.restorable.add(known);
  }

  delete(known: RememberedDelivery): void {
    this.all.delete(known);
    this.restorable.delete(known);
  }
}

/**
 * All deliveries that a process remembers. Pending ones are bounded: a full memory refuses new ones. Delivered and dead
 * ones have separate bounds, so that successes do not displace failures that need attention; the oldest are removed
 * first, and their payloads before anything is refused.
 */
export class DeliveryMemory {
  private readonly known = new Map<string, RememberedDelivery>();
  private readonly finished = { delivered: new FinishedGroup(), dead: new FinishedGroup() };
  private pendingBytes = 0;
  private finishedBytes = 0;
  private recorded = 0;

  constructor(
    private readonly limits: {
      readonly maxPending: number;
      readonly maxFinished: number;
      readonly maxBytes: number;
    },
  ) {}

  get pendingCount(): number {
    const { delivered, dead } = this.finished;
    return this.known.size - delivered.all.size - dead.all.size;
  }

  find(id: string): RememberedDelivery | undefined {
    return this.known.get(id);
  }

  list(filter: DeliveryFilter, { after, limit }: DeliveryPageRequest): readonly ListedDelivery[] {
    return [...this.known.values()]
      .filter((known) => matches(known, filter) && isAfter(known.delivery, after))
      .toSorted((a, b) => newestFirst(a.delivery, b.delivery))
      .slice(0, limit)
      .map((known) => known.listed());
  }

  counts({ unfinished, ...filter }: DeliveryCountFilter): readonly DeliveryCounts[] {
    const groups = new Map<string, Tally>();
    for (const known of this.known.values()) {
      if (!matches(known, filter) || (unfinished === true && known.status === 'delivered'))
        continue;
      const { endpointId, tenant, receiver } = factsOf(known.delivery);
      const key = JSON.stringify([endpointId, tenant, receiver]);
      let tally = groups.get(key);
      if (tally === undefined) {
        tally = { endpointId, tenant, receiver, pending: 0, delivered: 0, dead: 0 };
        groups.set(key, tally);
      }
      tally[known.status]++;
      if (known.status === 'pending') {
        tally.oldestDue = Math.min(tally.oldestDue ?? Infinity, known.due);
      }
    }
    return [...groups.values()];
  }

  /** @throws {@link WebhookStoreError} `store_full` unless all of them fit */
  requireRoomFor(deliveries: readonly WebhookDelivery[]): void {
    if (deliveries.length === 0) return;
    const { maxPending, maxBytes } = this.limits;
    if (this.pendingCount + deliveries.length > maxPending) {
      throw new WebhookStoreError(
        'store_full',
        `The delivery queue is full with ${maxPending} deliveries; raise maxPending, publish more slowly, or use a durable queue.`,
      );
    }
    const free = maxBytes - this.pendingBytes;
    const bytes = deliveries.reduce(
      (sum, { payload }) => sum + OVERHEAD + (payload.bytes?.byteLength ?? 0),
      0,
    );
    if (bytes > free) {
      throw new WebhookStoreError(
        'store_full',
        `The delivery queue has ${free} of ${maxBytes} bytes left, and this event needs ${bytes}; raise maxBytes, publish more slowly, or use a durable queue.`,
      );
    }
  }

  add(delivery: WebhookDelivery, due: number): RememberedDelivery {
    const known = new RememberedDelivery(delivery, due, this.recorded++);
    this.known.set(delivery.id, known);
    this.pendingBytes += OVERHEAD + known.bytes;
    this.shrink();
    return known;
  }

  /** Stores the outcome and the attempt of a run. */
  apply(known: RememberedDelivery, run: DeliveryRun, now: number): void {
    this.pendingBytes -= OVERHEAD + known.bytes;
    known.apply(run, now);
    if (known.status === 'pending') {
      this.pendingBytes += OVERHEAD + known.bytes;
      return;
    }
    this.finished[known.status].add(known);
    this.finishedBytes += known.bytes;
    this.shrink();
  }

  /** Makes a dead delivery pending. */
  revive(known: RememberedDelivery, now: number): void {
    this.finished.dead.delete(known);
    this.finishedBytes -= known.bytes;
    known.startRound(now, this.recorded++);
    this.pendingBytes += OVERHEAD + known.bytes;
    this.shrink();
  }

  prune(before: number, tenant: string | undefined): number {
    const { delivered, dead } = this.finished;
    const old = [...delivered.all, ...dead.all].filter((known) =>
      matches(known, { until: before, tenant }),
    );
    for (const known of old) this.forget(known);
    return old.length;
  }

  private forget(known: RememberedDelivery): void {
    this.known.delete(known.delivery.id);
    if (known.status !== 'pending') this.finished[known.status].delete(known);
    this.finishedBytes -= known.bytes;
  }

  private shrink(): void {
    const { maxFinished, maxBytes } = this.limits;
    const { delivered, dead } = this.finished;
    for (const { all } of [delivered, dead]) {
      if (all.size <= maxFinished + Math.floor(maxFinished * SLACK)) continue;
      for (const known of all) {
        if (all.size <= maxFinished) break;
        this.forget(known);
      }
    }
    const bound = Math.min(maxBytes * FINISHED_SHARE, maxBytes - this.pendingBytes);
    if (this.finishedBytes <= bound) return;
    for (const { restorable } of [delivered, dead]) {
      for (const known of restorable) {
        if (this.finishedBytes <= bound * (1 - SLACK)) return;
        this.finishedBytes -= known.bytes;
        known.dropPayload();
        restorable.delete(known);
      }
    }
  }
}

type Tally = { -readonly [Name in keyof DeliveryCounts]: DeliveryCounts[Name] };

function factsOf(delivery: WebhookDelivery): {
  readonly endpointId: string | undefined;
  readonly tenant: string | undefined;
  readonly receiver: string | undefined;
} {
  return delivery.received === undefined
    ? { endpointId: delivery.endpointId, tenant: delivery.tenant, receiver: undefined }
    : { endpointId: undefined, tenant: undefined, receiver: delivery.received.receiver };
}

function matches({ delivery, status }: RememberedDelivery, filter: DeliveryFilter): boolean {
  const { since = -Infinity, until = Infinity } = filter;
  const { endpointId, tenant, receiver } = factsOf(delivery);
  return (
    isWanted(filter.tenant, tenant) &&
    isWanted(filter.endpointId, endpointId) &&
    isWanted(filter.receiver, receiver) &&
    isWanted(filter.eventId, delivery.eventId) &&
    isWanted(filter.event, delivery.event) &&
    isWanted(filter.status, status) &&
    delivery.createdAt >= since &&
    delivery.createdAt < until
  );
}

function isWanted(wanted: string | undefined, value: string | undefined): boolean {
  return wanted === undefined || wanted === value;
}

type Place = Pick<WebhookDelivery, 'createdAt' | 'id'>;

/** Orders by `createdAt`, then by id, both descending. */
function newestFirst(a: Place, b: Place): number {
  if (a.createdAt !== b.createdAt) return b.createdAt - a.createdAt;
  if (a.id === b.id) return 0;
  return a.id < b.id ? 1 : -1;
}

function isAfter(delivery: Place, after: DeliveryPageRequest['after']): boolean {
  return after === undefined || newestFirst(after, delivery) < 0;
}
