import { AsyncResource } from 'node:async_hooks';
import {
  type CancelWake,
  repeat,
  SystemClock,
  waitUntil,
  type WebhookClock,
} from '../clock/webhook-clock.js';
import { readOptions } from '../options/read-options.js';
import {
  deliveryLane,
  type DeliveryAttempt,
  type DeliveryLimits,
  type DeliveryRecord,
  type WebhookDelivery,
  type DeliveryRun,
} from './webhook-delivery.js';
import { countDeliveries, listDeliveries } from './delivery-list.js';
import { DeliveryMemory, type RememberedDelivery } from './delivery-memory.js';
import { LaneLimits } from './lane-limits.js';
import {
  type DeliveryCountFilter,
  type DeliveryCounts,
  type DeliveryFilter,
  type DeliveryPageRequest,
  type ListedDelivery,
  type DeliveryHandler,
  type EnqueuedDelivery,
  type EnqueueOptions,
  WebhookQueue,
  queueStopped,
} from './webhook-queue.js';
import { PendingDeliveries, type TakenDelivery } from './pending-deliveries.js';
import {
  IN_PROCESS_QUEUE,
  type InProcessQueueOptions,
  RETENTION_INTERVAL,
  withQueueDefaults,
  servesAnother,
} from './queue-options.js';

/** Milliseconds by which the clock may be set back without a correction: a timer may fire a little early. */
const CLOCK_TOLERANCE = 1_000;

/**
 * Keeps deliveries in memory. **A crash loses them**: use it in development, in tests, and for events that may be lost.
 *
 * Number and bytes are limited; a full queue refuses new deliveries. Each instance serves one publisher.
 */
export class InProcessQueue extends WebhookQueue {
  override readonly durable = false;
  override readonly shared = false;
  override readonly transactional = false;

  private readonly concurrency: number;
  private readonly clock: WebhookClock;
  private readonly pending: PendingDeliveries;
  private readonly memory: DeliveryMemory;
  private readonly limits = new LaneLimits();
  /** Milliseconds; absent if payloads are kept as long as their deliveries. */
  private readonly keepPayloads: number | undefined;

  private handler: DeliveryHandler | undefined;
  /** The async context of `consume`. */
  private background: AsyncResource | undefined;
  private running = 0;
  private pumpScheduled = false;
  /** The latest time that the clock has shown, unless it was set back since. */
  private lastTime = -Infinity;
  private armed: { readonly at: number; readonly cancel: CancelWake } | undefined;
  private stopRetention: CancelWake = () => {};
  private stopping = false;
  private closed = false;
  /** Called after each run. */
  private readonly watchers = new Set<() => void>();

  /** @throws {@link WebhookConfigurationError} */
  constructor(options?: InProcessQueueOptions) {
    super();
    const read = withQueueDefaults(readOptions(IN_PROCESS_QUEUE, options, 'InProcessQueue'));
    this.concurrency = read.concurrency;
    this.clock = read.clock;
    this.keepPayloads = read.keepPayloads;
    this.pending = new PendingDeliveries(read, this.limits);
    this.memory = new DeliveryMemory(read, this.limits, (entry) => this.pending.add(entry));
  }

  /** Pending deliveries, running ones included. */
  get size(): number {
    return this.memory.pendingCount;
  }

  override async enqueue(
    deliveries: readonly EnqueuedDelivery[],
    { check }: EnqueueOptions = {},
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    this.refuseWhenStopping();
    check?.(deliveries.map(({ delivery }) => this.memory.find(delivery.id)?.record()));
    const now = this.readClock();
    const fresh = new Map<string, WebhookDelivery>();
    for (const { delivery } of deliveries) {
      if (this.memory.find(delivery.id) === undefined) fresh.set(delivery.id, delivery);
    }
    this.memory.requireRoomFor([...fresh.values()]);
    const known = deliveries.map(({ delivery, notBefore, limits }) => {
      if (limits !== undefined) this.limit(deliveryLane(delivery), limits);
      const record = this.memory.find(delivery.id)?.record();
      if (record === undefined) {
        const entry = this.memory.add(delivery, notBefore, now);
        if (entry.turn?.isWaiting !== true) this.pending.add(entry);
      }
      return record;
    });
    this.schedulePump();
    return known;
  }

  override consume(handler: DeliveryHandler): void {
    if (this.handler !== undefined) {
      throw servesAnother(this.stopping);
    }
    this.handler = handler;
    this.background = new AsyncResource('WebhookQueue');
    const { clock, keepPayloads, memory } = this;
    if (keepPayloads !== undefined) {
      this.stopRetention = repeat(clock, RETENTION_INTERVAL, async () =>
        memory.dropPayloads(clock.now() - keepPayloads),
      );
    }
    this.schedulePump();
  }

  override async find(ids: readonly string[]): Promise<readonly (DeliveryRecord | undefined)[]> {
    return ids.map((id) => this.memory.find(id)?.record());
  }

  override async list(
    filter: DeliveryFilter,
    page: DeliveryPageRequest,
  ): Promise<readonly ListedDelivery[]> {
    return listDeliveries(this.memory.all(), filter, page);
  }

  override async attempts(id: string): Promise<readonly DeliveryAttempt[]> {
    return this.memory.find(id)?.attempts ?? [];
  }

  override async counts(filter: DeliveryCountFilter): Promise<readonly DeliveryCounts[]> {
    const now = this.clock.now();
    return countDeliveries(this.memory.all(), filter, (lane) => this.limits.heldUntil(lane, now));
  }

  override async redeliver(ids: readonly string[]): Promise<readonly string[]> {
    this.refuseWhenStopping();
    const now = this.readClock();
    const known = [...new Set(ids)].flatMap((id) => this.memory.find(id) ?? []);
    const dead = known.filter(({ status, isRestorable }) => status === 'dead' && isRestorable);
    const waiting = known.filter(({ status, due }) => status === 'pending' && due > now);
    this.memory.requireRoomFor(dead.map(({ delivery }) => delivery));
    for (const entry of dead) {
      this.memory.revive(entry, now);
      this.pending.add(entry);
    }
    for (const entry of waiting) {
      entry.due = now;
      this.pending.bringForward(entry);
    }
    this.schedulePump();
    return [...dead, ...waiting].map(({ delivery }) => delivery.id);
  }

  override async skip(ids: readonly string[]): Promise<readonly string[]> {
    const skipped = [...new Set(ids)].filter((id) => {
      const entry = this.memory.find(id);
      return entry !== undefined && this.memory.skip(entry);
    });
    this.schedulePump();
    return skipped;
  }

  override async prune(
    before: number,
    { tenant }: { readonly tenant?: string | undefined } = {},
  ): Promise<number> {
    const pruned = this.memory.prune(before, tenant);
    this.schedulePump();
    return pruned;
  }

  override async erase(filter: DeliveryFilter): Promise<number> {
    const erased = this.memory.erase(filter);
    this.pending.remove(erased, this.readClock());
    this.schedulePump();
    return erased.size;
  }

  override async limitLane(lane: string, limits: DeliveryLimits): Promise<void> {
    this.limit(lane, limits);
    this.schedulePump();
  }

  override async stop(deadline: number): Promise<number> {
    this.stopping = true;
    this.stopRetention();
    // Also those that wait for a limit: they are lost with the process. A test clock may never let them start.
    const until = this.clock instanceof SystemClock ? deadline : undefined;
    await waitUntil(this.clock, deadline, this.idle(until));
    this.closed = true;
    this.disarm();
    return this.size;
  }

  override async flush(): Promise<void> {
    await this.idle();
  }

  /** Resolves when nothing is running, and nothing due can start by a time; default: now. */
  private async idle(until?: number): Promise<void> {
    return new Promise((resolve) => {
      const check = (): void => {
        const now = this.readClock();
        const isWorking = this.handler !== undefined && !this.closed;
        if (this.running > 0 || (isWorking && this.pending.canStartBy(until ?? now, now))) return;
        this.watchers.delete(check);
        resolve();
      };
      this.watchers.add(check);
      this.schedulePump();
      check();
    });
  }

  private refuseWhenStopping(): void {
    if (this.stopping) throw queueStopped();
  }

  /** If the clock was set back, the due times move with it: nothing waits longer for that. */
  private readClock(): number {
    const now = this.clock.now();
    const change = now - this.lastTime;
    if (change < -CLOCK_TOLERANCE) {
      this.memory.shift(change);
      this.pending.retryAll(now);
    }
    this.lastTime = now;
    return now;
  }

  /** Runs handlers in a later microtask: `enqueue` must return before an attempt begins. */
  private schedulePump(): void {
    const now = this.readClock();
    const { nextDue } = this.pending;
    if (
      nextDue === undefined ||
      this.handler === undefined ||
      this.closed ||
      this.running >= this.concurrency
    ) {
      return;
    }
    if (nextDue <= now) {
      if (this.pumpScheduled) return;
      this.pumpScheduled = true;
      void this.pumpSoon();
    } else if (this.armed === undefined || nextDue < this.armed.at) {
      this.disarm();
      this.armed = { at: nextDue, cancel: this.clock.wakeAt(nextDue, () => this.wake(nextDue)) };
    }
  }

  private async pumpSoon(): Promise<void> {
    // Not queueMicrotask, which fake timers of Jest replace.
    await Promise.resolve();
    this.pumpScheduled = false;
    this.background!.runInAsyncScope(this.pump, this);
  }

  private wake(at: number): void {
    // A clock that shows less was set back while the timer ran.
    this.lastTime = at;
    this.armed = undefined;
    this.background!.runInAsyncScope(this.pump, this);
  }

  private disarm(): void {
    this.armed?.cancel();
    this.armed = undefined;
  }

  private pump(): void {
    const now = this.readClock();
    while (!this.closed && this.running < this.concurrency) {
      const taken = this.pending.takeDue(now);
      if (taken === undefined) break;
      void this.run(taken);
    }
    this.schedulePump();
    this.notifyWatchers();
  }

  private notifyWatchers(): void {
    for (const check of this.watchers) check();
  }

  private limit(lane: string, limits: DeliveryLimits): void {
    const now = this.readClock();
    const running = this.pending.runningIn(lane);
    if (this.limits.set(lane, limits, now, running)) this.pending.limitsChanged(lane, now);
  }

  private async run(taken: TakenDelivery): Promise<void> {
    const { entry } = taken;
    this.running++;
    entry.isRunning = true;
    let run: DeliveryRun | undefined;
    try {
      run = await this.handler!(entry.delivery, entry.nextAttempt);
    } catch {
      // The handler has logged the error; the delivery runs again.
    }
    this.running--;
    entry.isRunning = false;
    const now = this.readClock();
    if (run?.limits !== undefined) this.limit(entry.lane, run.limits);
    if (run?.overloadedUntil !== undefined) {
      this.limits.overloaded(entry.lane, run.overloadedUntil, now);
    }
    this.pending.release(taken, now, run?.attempt !== undefined);
    this.settle(entry, run, now);
    this.schedulePump();
    this.notifyWatchers();
  }

  private settle(entry: RememberedDelivery, run: DeliveryRun | undefined, now: number): void {
    entry.apply(run, now);
    this.memory.update(entry);
    if (entry.status === 'pending') this.pending.add(entry);
  }
}
