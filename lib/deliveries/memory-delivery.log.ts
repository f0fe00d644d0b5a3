import { WebhookConfigurationError } from '../errors/webhook.error.js';
import { ConfigurationFaults } from '../options/configuration-faults.js';
import type { EnqueuedDelivery } from '../queue/webhook-queue.js';
import type { FailureReason } from '../queue/failure-reason.js';
import type { WebhookDelivery } from '../queue/webhook-delivery.interface.js';
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

/** A delivery, and what a choice among several looks at. */
interface Standing {
  readonly delivery: WebhookDelivery;
  readonly status: DeliveryStatus;
  readonly nextAttemptAt?: number | undefined;
}

/** Whether a filter asks for a delivery. */
function matchesFilter(
  { delivery, status, nextAttemptAt = Infinity }: Standing,
  filter: DeliveryFilter,
): boolean {
  const { since = -Infinity, until = Infinity, dueBefore } = filter;
  return (
    isAskedFor(filter.tenant, delivery.tenant) &&
    isAskedFor(filter.endpointId, delivery.endpointId) &&
    isAskedFor(filter.eventId, delivery.eventId) &&
    isAskedFor(filter.event, delivery.event) &&
    isAskedFor(filter.status, status) &&
    delivery.createdAt >= since &&
    delivery.createdAt < until &&
    (dueBefore === undefined || (status === 'pending' && nextAttemptAt < dueBefore))
  );
}

function isAskedFor(wanted: string | undefined, value: string | undefined): boolean {
  return wanted === undefined || wanted === value;
}

/** The order of lists: by `createdAt`, then by id, the greater first. */
function newestFirst(
  a: Pick<WebhookDelivery, 'createdAt' | 'id'>,
  b: Pick<WebhookDelivery, 'createdAt' | 'id'>,
): number {
  if (a.createdAt !== b.createdAt) return b.createdAt - a.createdAt;
  if (a.id === b.id) return 0;
  return a.id < b.id ? 1 : -1;
}

/** Whether a delivery comes behind the last one of a page. */
function isBehind(
  delivery: Pick<WebhookDelivery, 'createdAt' | 'id'>,
  after: DeliveryPageRequest['after'],
): boolean {
  return after === undefined || newestFirst(after, delivery) < 0;
}

/** Counts deliveries by endpoint and tenant. */
function countDeliveries(deliveries: readonly Standing[]): DeliveryCounts[] {
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

/** Attempts of one delivery that are remembered, the last ones: who redelivers it for ever must not fill the memory. */
const MAX_ATTEMPTS = 100;

/** One delivery in the memory of a log, and what its changes make of it. */
class RememberedDelivery {
  status: DeliveryStatus = 'pending';
  /** Of the payload and of the answers. */
  bytes: number;
  nextAttemptAt: number | undefined;
  private attempts = 0;
  private reason: FailureReason | undefined;
  private updatedAt: number;
  private made: LoggedAttempt[] = [];

  constructor(
    readonly delivery: WebhookDelivery,
    notBefore: number,
  ) {
    this.bytes = delivery.payload.bytes?.byteLength ?? 0;
    this.nextAttemptAt = notBefore;
    this.updatedAt = delivery.createdAt;
  }

  /** One that is heard of by a change. */
  static of(change: DeliveryChange): RememberedDelivery {
    const known = new RememberedDelivery(change.delivery, change.nextAttemptAt ?? change.at);
    known.updatedAt = -Infinity;
    known.apply(change);
    return known;
  }

  apply({ status, attempts, nextAttemptAt, reason, at, made }: DeliveryChange): void {
    if (made !== undefined) this.remember(made);
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
    return this.made.toSorted((a, b) => a.at - b.at || a.attempt - b.attempt);
  }

  private remember(made: LoggedAttempt): void {
    if (this.made.some(({ attempt, at }) => attempt === made.attempt && at === made.at)) return;
    this.made.push(made);
    this.bytes += answerBytes(made);
    if (this.made.length > MAX_ATTEMPTS) this.bytes -= answerBytes(this.made.shift()!);
  }
}

function answerBytes({ answer }: LoggedAttempt): number {
  return answer === undefined ? 0 : Buffer.byteLength(answer);
}

/** Bounds of the log in memory. */
export interface MemoryDeliveryLogOptions {
  /** Delivered ones that are remembered, the last ones, and dead ones, as many; default 1,000. */
  readonly maxFinished?: number | undefined;
  /**
   * Pending ones that are remembered, the last ones; default 10,000. `Infinity` remembers all of them: right where the queue
   * is in this process too, which holds and bounds them itself.
   */
  readonly maxPending?: number | undefined;
  /** Bytes of payloads and answers; default 16 MiB. Pending ones count where `maxPending` is finite. */
  readonly maxBytes?: number | undefined;
}

/**
 * Remembers in this process's memory what became of its deliveries: the last ones, until it ends.
 *
 * Where a bound is reached, what was delivered longest ago is forgotten first, then what died first, then what has been pending
 * for longest.
 */
export class MemoryDeliveryLog extends DeliveryLog {
  override readonly durable = false;
  override readonly transactional = false;

  private readonly maxPending: number;
  private readonly maxFinished: number;
  private readonly maxBytes: number;
  private readonly known = new Map<string, RememberedDelivery>();
  /** Each in the order in which they came to be so. */
  private readonly standing: Readonly<Record<DeliveryStatus, Set<RememberedDelivery>>> = {
    pending: new Set(),
    delivered: new Set(),
    dead: new Set(),
  };
  private heldBytes = 0;

  /** @throws {@link WebhookConfigurationError} for a bound that is no whole number above 0 */
  constructor(options: MemoryDeliveryLogOptions = {}) {
    super();
    const { maxFinished = 1_000, maxPending = 10_000, maxBytes = 16 * 1024 * 1024 } = options;
    const faults = new ConfigurationFaults('MemoryDeliveryLog');
    for (const [name, bound] of Object.entries({ maxFinished, maxPending, maxBytes })) {
      const isBound = Number.isSafeInteger(bound) && bound > 0;
      const isNone = name === 'maxPending' && bound === Infinity;
      faults.require(isBound || isNone, name, 'must be a whole number above 0');
    }
    if (faults.all.length > 0) throw new WebhookConfigurationError(faults.all);
    this.maxFinished = maxFinished;
    this.maxPending = maxPending;
    this.maxBytes = maxBytes;
  }

  override async record(deliveries: readonly EnqueuedDelivery[]): Promise<void> {
    for (const { delivery, notBefore } of deliveries) {
      if (!this.known.has(delivery.id)) this.add(new RememberedDelivery(delivery, notBefore));
    }
    this.shrink();
  }

  override async change(changes: readonly DeliveryChange[]): Promise<void> {
    for (const change of changes) {
      const known = this.known.get(change.delivery.id);
      if (known === undefined) this.add(RememberedDelivery.of(change));
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
      .filter((known) => matchesFilter(known, filter) && isBehind(known.delivery, after))
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
    const old = [...this.standing.delivered, ...this.standing.dead].filter(
      (known) => known.delivery.createdAt < before && matchesFilter(known, { tenant }),
    );
    for (const known of old) this.forget(known);
    return old.length;
  }

  private add(known: RememberedDelivery): void {
    this.known.set(known.delivery.id, known);
    this.standing[known.status].add(known);
    this.heldBytes += this.weightOf(known);
  }

  private move(known: RememberedDelivery, change: DeliveryChange): void {
    this.heldBytes -= this.weightOf(known);
    const { status } = known;
    known.apply(change);
    if (known.status !== status) {
      this.standing[status].delete(known);
      this.standing[known.status].add(known);
    }
    this.heldBytes += this.weightOf(known);
  }

  private forget(known: RememberedDelivery): void {
    this.known.delete(known.delivery.id);
    this.standing[known.status].delete(known);
    this.heldBytes -= this.weightOf(known);
  }

  /** What the queue in this process holds anyway weighs nothing here. */
  private weightOf(known: RememberedDelivery): number {
    return known.status === 'pending' && this.maxPending === Infinity ? 0 : known.bytes;
  }

  private shrink(): void {
    const { delivered, dead, pending } = this.standing;
    this.forgetOldest(delivered, () => delivered.size > this.maxFinished);
    this.forgetOldest(dead, () => dead.size > this.maxFinished);
    this.forgetOldest(pending, () => pending.size > this.maxPending);
    for (const standing of [delivered, dead, pending]) {
      this.forgetOldest(standing, () => this.heldBytes > this.maxBytes);
    }
  }

  private forgetOldest(standing: Set<RememberedDelivery>, isTooMuch: () => boolean): void {
    if (!isTooMuch()) return;
    for (const known of standing) {
      this.forget(known);
      if (!isTooMuch()) return;
    }
  }
}
