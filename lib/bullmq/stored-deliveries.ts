import { Job, type Queue } from 'bullmq';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { FIRST_WAIT_AFTER_THROW } from '../queue/retry-schedule.js';
import {
  type DeliveryAttempt,
  type DeliveryRecord,
  type WebhookDelivery,
  deliveryLane,
  takesTurn,
} from '../queue/webhook-delivery.js';
import type {
  DeliveryPageRequest,
  ListedDelivery,
  EnqueuedDelivery,
} from '../queue/webhook-queue.js';
import { listed, matches, pendingRecord } from '../queue/delivery-list.js';
import { type DeliveryHistory, type HistoryFilter, SETTLING } from './delivery-history.js';
import {
  attemptsOf,
  deliveryIdOf,
  type DeliveryJob,
  droppedPayload,
  inState,
  isDead,
  isDelivered,
  isEvicted,
  jobIdOf,
  jobOf,
  newJobData,
  newRound,
  recordOf,
  SKIPPED,
} from './delivery-job.js';
import type { FairTurns } from './fair-turns.js';
import { type KeyTurns, type Turn, turnOf, turnOfJob } from './key-turns.js';
import type { SharedLimits } from './shared-limits.js';

/** Deliveries that one check of the history looks at, of all and of the pending ones: operators watch these. */
const CHECKED = { all: 200, pending: 500 };
/** Deliveries that are removed at once. */
export const REMOVED = 1_000;
/** Jobs that are read at once: each is read with its payload, which may be large. */
const READ_AT_ONCE = 10;
/** Deliveries that are listed in the time of one step. */
const LONGEST_PAGE = 100;

/** Replies with which a server has recorded nothing. */
const REFUSED = /^(?:OOM|EXECABORT|READONLY|NOREPLICAS|MISCONF)\b/;

/** BullMQ counts a crash as an attempt; no number of crashes may end a delivery. */
const UNLIMITED = Number.MAX_SAFE_INTEGER;

interface StoredDeliveriesParts {
  readonly queue: Queue;
  readonly history: DeliveryHistory;
  readonly turns: FairTurns;
  readonly keys: KeyTurns;
  readonly limits: SharedLimits;
  readonly clock: WebhookClock;
  /** Resolves once the connection of the queue was replaced. */
  readonly replaceConnection: () => Promise<void>;
}

/** The deliveries of a queue: a job for each, with an entry in the history. */
export class StoredDeliveries {
  /** How many calls of `record` are about to add an id. */
  private readonly recording = new Map<string, number>();
  /** Where the next check of the history begins. */
  private readonly checkedTo: Record<keyof typeof CHECKED, DeliveryPageRequest['after']> = {
    all: undefined,
    pending: undefined,
  };

  constructor(private readonly parts: StoredDeliveriesParts) {}

  /**
   * Records deliveries. Concurrent calls of this process never both record an id.
   *
   * @param signal - aborted once the caller has given up: no job is added after that
   */
  async record(
    deliveries: readonly EnqueuedDelivery[],
    signal?: AbortSignal,
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    const items = new Map(deliveries.toReversed().map((item) => [item.delivery.id, item]));
    const own = [...items.keys()].filter((id) => !this.recording.has(id));
    this.countRecording(items.keys(), 1);
    try {
      await this.parts.limits.record(deliveries);
      const known = await this.add([...items.values()].toReversed(), signal);
      const fresh = new Set(own.filter((id) => !known.has(id)));
      const others = [...items.keys()].filter((id) => !fresh.has(id) && !known.has(id));
      for (const record of await this.read(others)) {
        if (record !== undefined) known.set(record.delivery.id, record);
      }
      return deliveries.map(({ delivery: { id } }) =>
        // Its twin in the same call was recorded with the first.
        fresh.delete(id) ? undefined : (known.get(id) ?? pendingRecord(items.get(id)!)),
      );
    } catch (error) {
      const isRefused = signal?.aborted === true || REFUSED.test((error as Error).message);
      if (isRefused) await this.leaveOrder(deliveries).catch(() => {});
      throw error;
    } finally {
      this.countRecording(items.keys(), -1);
    }
  }

  private countRecording(ids: Iterable<string>, change: 1 | -1): void {
    for (const id of ids) {
      const count = (this.recording.get(id) ?? 0) + change;
      if (count === 0) this.recording.delete(id);
      else this.recording.set(id, count);
    }
  }

  /** Ends the turns of deliveries that were refused, unless they are known or are being recorded by another call. */
  private async leaveOrder(items: readonly EnqueuedDelivery[]): Promise<void> {
    const turns = items.flatMap(({ delivery }) => ownTurnOf(delivery) ?? []);
    for (const turn of turns.filter(({ id }) => this.recording.get(id) === 1)) {
      const state = await this.parts.queue.getJobState(jobIdOf(turn.id));
      if (state === 'unknown') await this.parts.keys.end(turn);
    }
  }

  /** Adds the jobs that do not exist yet, all or none. @returns the records of the others, by id */
  private async add(
    items: readonly EnqueuedDelivery[],
    signal: AbortSignal | undefined,
  ): Promise<Map<string, DeliveryRecord>> {
    const ids = items.map(({ delivery }) => delivery.id);
    // In this order: a delivery without an entry is new. If the entries are written first after all, it is numbered below.
    const [places, turns, indexed] = await Promise.all([
      this.enterOrder(items, false),
      this.parts.turns.take(items.map(({ delivery }) => deliveryLane(delivery))),
      this.parts.history.add(items.map(pendingRecord), this.parts.clock.now()),
    ]);
    // An entry is added before its job and deleted after it, so a new entry has no job yet.
    const records = indexed === ids.length ? [] : await this.read(ids);
    const fresh = items.filter((_, index) => records[index] === undefined);
    if (records.length > 0) await this.removeEvicted(fresh);
    const unplaced = fresh.filter(
      ({ delivery }) => ownTurnOf(delivery) !== undefined && !places.has(delivery.id),
    );
    // Their entries are left from a call that failed.
    for (const [id, place] of await this.enterOrder(unplaced, true)) places.set(id, place);
    const jobs = items.flatMap((item, index) =>
      records[index] === undefined
        ? [this.newJob(item, turns[index]!, places.get(item.delivery.id))]
        : [],
    );
    try {
      signal?.throwIfAborted();
      const [first] = jobs;
      if (jobs.length === 1) await this.parts.queue.add(first!.name, first!.data, first!.opts);
      else if (jobs.length > 1) await this.addAll(jobs, signal);
    } catch (error) {
      // The jobs may exist: only the answer may be lost. A repair deletes the entries of those that do not.
      const added = fresh.map(({ delivery }) => delivery.id);
      this.parts.history.addUnwritten(added, this.parts.clock.now());
      throw error;
    }
    const entered = fresh.flatMap(({ delivery }) => ownTurnOf(delivery) ?? []);
    this.parts.keys.recorded(
      entered.map((turn) => ({ ...turn, waits: places.get(turn.id)?.waits === true })),
    );
    if (indexed !== jobs.length) await this.repair(ids);
    return new Map(records.flatMap((record) => (record ? [[record.delivery.id, record]] : [])));
  }

  /** BullMQ would ignore a delivery of which it has a job. @throws if a worker is removing that job */
  private async removeEvicted(items: readonly EnqueuedDelivery[]): Promise<void> {
    for (const { delivery } of items) {
      const job = await this.parts.queue.getJob(jobIdOf(delivery.id));
      if (job !== undefined && isEvicted(job)) await job.remove();
    }
  }

  /** In one MULTI: all or none. `addBulk` sends a pipeline, and a server that becomes full runs a part of it. */
  private async addAll(jobs: readonly NewJob[], signal: AbortSignal | undefined): Promise<void> {
    const { queue } = this.parts;
    const entries = jobs.map(({ name, data, opts }) => {
      const merged = { ...queue.defaultJobOptions, ...opts };
      return new Job(queue, name, data, merged, merged.jobId).toFlowEntry();
    });
    const firstError = async (): Promise<Error | undefined | null> => {
      const results = await queue.getBackend().addFlow(entries);
      return results.find(([error]) => error)?.[0];
    };
    let error = await firstError();
    if (error?.message.startsWith('NOSCRIPT') === true) {
      // The server has forgotten a script. On a new connection, the client sends it again; jobs that exist are not added again.
      await this.parts.replaceConnection();
      signal?.throwIfAborted();
      error = await firstError();
    }
    if (error) throw error;
  }

  /** Numbers the deliveries that take turns. */
  private async enterOrder(
    items: readonly EnqueuedDelivery[],
    areNew: boolean,
  ): Promise<Map<string, Place>> {
    const turns = items.flatMap(({ delivery }) => ownTurnOf(delivery) ?? []);
    const places = await this.parts.keys.enter(turns, areNew);
    return new Map(
      turns.flatMap(({ id }, index) => (places[index] ? [[id, places[index]] as const] : [])),
    );
  }

  /** Reads and repairs one page of the history. Also a page before the last one may have fewer than `limit` deliveries. */
  async page(
    filter: HistoryFilter,
    { after, limit }: DeliveryPageRequest,
  ): Promise<{ found: readonly ListedDelivery[]; next: DeliveryPageRequest['after'] }> {
    // A turn may have ended since, which leaves the sets right.
    const { keyState, ...indexed } = filter;
    const page = { after, limit: Math.min(limit, LONGEST_PAGE) };
    const { ids, next } = await this.parts.history.list(filter, page);
    const found: ListedDelivery[] = [];
    const wrong: string[] = [];
    for (let from = 0; from < ids.length; from += READ_AT_ONCE) {
      const part = ids.slice(from, from + READ_AT_ONCE);
      for (const [index, record] of (await this.read(part)).entries()) {
        if (record === undefined || !matches(record, indexed)) wrong.push(part[index]!);
        else if (keyState === undefined || keyState === (record.keyState ?? 'none')) {
          found.push(listed(record));
        }
      }
    }
    await this.repair(wrong);
    return { found, next };
  }

  async attempts(id: string): Promise<readonly DeliveryAttempt[]> {
    const job = await this.job(id);
    if (job === undefined) return [];
    const { logs } = await this.parts.queue.getJobLogs(jobIdOf(id));
    return attemptsOf(job, logs);
  }

  /** Makes a dead or waiting delivery due now. @returns whether it was dead or waited for its next attempt */
  async redeliver(id: string): Promise<boolean> {
    const job = await this.job(id);
    return job !== undefined && this.makeDue(job);
  }

  /** Releases the key that a dead delivery blocks. @returns whether it blocked one */
  async skip(id: string): Promise<boolean> {
    const job = await this.job(id);
    const turn = job && turnOfJob(job);
    if (turn === undefined || job!.finishedOn === undefined || isDelivered(job!)) return false;
    await this.parts.keys.open([turn]);
    const isSkipped = await inState(job!, 'failed', async () => job!.updateProgress(SKIPPED));
    return isSkipped && this.parts.keys.end(turn);
  }

  /** Leaves out the jobs that wait for their turn, or for a limit. */
  async withoutWaiting(jobs: readonly DeliveryJob[]): Promise<readonly DeliveryJob[]> {
    const waiting = await this.waitingForTurn(jobs);
    const parked = await this.parts.limits.areParked(jobs);
    return jobs.filter(
      ({ data }, index) => !waiting.has(data.delivery.id) && parked[index] !== true,
    );
  }

  private async waitingForTurn(jobs: readonly DeliveryJob[]): Promise<ReadonlySet<string>> {
    const turns = jobs.flatMap((job) => turnOfJob(job) ?? []);
    const flags = await this.parts.keys.areWaiting(turns);
    return new Set(turns.filter((_, index) => flags[index]).map(({ id }) => id));
  }

  private async job(id: string): Promise<DeliveryJob | undefined> {
    return jobOf(this.parts.queue, id);
  }

  async read(ids: readonly string[]): Promise<(DeliveryRecord | undefined)[]> {
    const jobs = await Promise.all(ids.map(async (id) => this.job(id)));
    const records = await Promise.all(
      jobs.map(async (job) => job && recordOf(job, await this.latestStart(job))),
    );
    const known = jobs.filter((job) => job !== undefined);
    const [waiting, flags] = await Promise.all([
      this.waitingForTurn(known),
      this.parts.limits.areParked(known),
    ]);
    const parked = new Set(known.filter((_, index) => flags[index]));
    return records.map((record, index) => {
      if (record?.status !== 'pending') return record;
      const keyState = waiting.has(record.delivery.id) ? 'waiting' : undefined;
      const isLimited = parked.has(jobs[index]!) ? true : undefined;
      return { ...record, keyState, isLimited };
    });
  }

  /** Now, for a job that was brought forward. */
  private async latestStart(job: DeliveryJob): Promise<number> {
    const now = this.parts.clock.now();
    if (job.delay > 0 || job.data.dueAt <= now || job.finishedOn !== undefined) return Infinity;
    return ['waiting', 'prioritized'].includes(await job.getState()) ? now : Infinity;
  }

  /** Removes deliveries, which release their ordering keys. @returns how many; a job that runs is not removed */
  async remove(deliveries: readonly ListedDelivery['delivery'][]): Promise<number> {
    const { queue, keys, history } = this.parts;
    await keys.open(deliveries.flatMap((delivery) => turnOf(delivery) ?? []));
    const counts = await Promise.all(deliveries.map(async ({ id }) => queue.remove(jobIdOf(id))));
    const removed = deliveries.filter((_, index) => counts[index] === 1);
    // BullMQ answers the same for a job that another process has removed meanwhile.
    const count = await history.delete(removed.map(({ id }) => id));
    const turns = removed.flatMap((delivery) => turnOf(delivery) ?? []);
    await Promise.all(turns.map(async (turn) => keys.end(turn)));
    return count;
  }

  private async repair(ids: readonly string[]): Promise<void> {
    const { history, clock } = this.parts;
    const left = await history.repair(ids, async (some) => this.read(some), clock.now());
    // An operator may have removed their jobs in a dashboard.
    for (const turn of left) await this.parts.keys.end(turn);
  }

  /**
   * Removes a batch of delivered deliveries that are older than `keep` milliseconds, or more than `max`.
   *
   * @returns whether more may have to be removed
   */
  async removeOld(keep: number, max: number): Promise<boolean> {
    if ((await this.clean(keep, REMOVED)) === REMOVED) return true;
    const excess = (await this.parts.queue.getCompletedCount()) - max;
    if (excess > 0) await this.clean(0, Math.min(excess, REMOVED));
    return excess > REMOVED;
  }

  /** Removes delivered deliveries that were done so many milliseconds ago, the oldest first. @returns how many */
  private async clean(grace: number, limit: number): Promise<number> {
    const removed = await this.parts.queue.clean(grace, limit, 'completed');
    await this.parts.history.delete(removed.map(deliveryIdOf));
    return removed.length;
  }

  /** Drops a batch of payloads of deliveries that were delivered until a time. @returns whether more may be due */
  async dropPayloads(until: number): Promise<boolean> {
    const ids = await this.parts.history.takePayloads(until, READ_AT_ONCE);
    await Promise.all(ids.map(async (id) => this.dropPayload(id)));
    return ids.length === READ_AT_ONCE;
  }

  private async dropPayload(id: string): Promise<void> {
    const job = await this.job(id);
    if (job === undefined) return void (await this.parts.history.delete([id]));
    if (isDelivered(job)) await job.updateData(droppedPayload(job.data));
    await this.parts.history.set(recordOf(job), this.parts.clock.now());
  }

  /** Makes a part of the history agree with the jobs. */
  async checkHistory(): Promise<void> {
    const now = this.parts.clock.now();
    const { wrong, turns } = await this.checkNext('pending', now);
    await this.parts.keys.checkWaiting(turns);
    wrong.push(...(await this.checkNext('all', now)).wrong);
    const { unwritten } = this.parts.history;
    const settled = [...unwritten]
      .filter(([, since]) => since <= now - SETTLING)
      .slice(0, CHECKED.all);
    await this.repair([...wrong, ...settled.map(([id]) => id)]);
    for (const [id, since] of settled) {
      // It may have been added again meanwhile.
      if (unwritten.get(id) === since) unwritten.delete(id);
    }
  }

  private async checkNext(part: keyof typeof CHECKED, now: number) {
    const { history } = this.parts;
    const filter = part === 'pending' ? { status: part } : {};
    const page = { after: this.checkedTo[part], limit: CHECKED[part] };
    const { ids, next } = await history.list(filter, page);
    this.checkedTo[part] = next;
    return history.check(ids, now);
  }

  private newJob(item: EnqueuedDelivery, priority: number, place: Place | undefined): NewJob {
    const { clock, keys } = this.parts;
    const dueAt = place?.waits === true ? keys.waitsUntil : item.notBefore;
    return {
      name: 'delivery',
      data: newJobData(item, place?.sequence),
      opts: {
        jobId: jobIdOf(item.delivery.id),
        priority,
        // An error inside BullMQ, for example on a full server, must not end a delivery.
        attempts: UNLIMITED,
        backoff: { type: 'fixed', delay: FIRST_WAIT_AFTER_THROW },
        delay: Math.max(0, dueAt - clock.now()),
        removeOnComplete: false,
        removeOnFail: false,
      },
    };
  }

  private async makeDue(job: DeliveryJob): Promise<boolean> {
    const now = this.parts.clock.now();
    if (isDelivered(job)) return false;
    if (isDead(job)) {
      // Its worker has recorded the outcome, and BullMQ has yet to move it.
      if (job.finishedOn === undefined) return false;
      const data = newRound(job.data, now);
      const { delivery } = recordOf(job);
      const [priority] = await this.parts.turns.take([deliveryLane(delivery)]);
      const state = { status: 'pending', attempts: 0, nextAttemptAt: now, updatedAt: now } as const;
      return inState(job, 'failed', async () => {
        await job.changePriority({ priority: priority! });
        await this.parts.history.set({ delivery, ...state }, now);
        await job.updateData(data);
        await job.retry('failed');
      });
    }
    if (job.data.dueAt <= now) return false;
    if (!(await inState(job, 'delayed', async () => job.promote()))) return false;
    await this.parts.history.set({ ...recordOf(job), nextAttemptAt: now }, now);
    return true;
  }
}

type NewJob = Parameters<Queue['addBulk']>[0][number];
type Place = Exclude<Awaited<ReturnType<KeyTurns['enter']>>[number], undefined>;

/** The turn of a delivery that is recorded; `undefined` if it has none, or had it before. */
function ownTurnOf(delivery: WebhookDelivery): Turn | undefined {
  return takesTurn(delivery) ? turnOf(delivery) : undefined;
}
