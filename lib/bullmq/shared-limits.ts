import type { Queue } from 'bullmq';
import { DAY } from '../clock/duration.js';
import { type CancelWake, repeat, type WebhookClock } from '../clock/webhook-clock.js';
import { isLimited, RememberedLimits } from '../queue/lane-limits.js';
import { type DeliveryLimits, type DeliveryRun, deliveryLane } from '../queue/webhook-delivery.js';
import type { EnqueuedDelivery } from '../queue/webhook-queue.js';
import { type DeliveryJob, inState, jobIdOf } from './delivery-job.js';
import { ADMIT, ARE_PARKED, END, EXTEND, SET_LIMITS, UNPARK, WAKE } from './limit-scripts.js';
import { ownKey, ScriptBatch } from './queue-script.js';

/** Milliseconds for which a parked job waits, unless it is woken. */
const LONGEST_WAIT = DAY;
/** Parked jobs that are woken at once. */
const WOKEN_AT_ONCE = 100;
/** Milliseconds between two extensions of the own runs, and between two looks at lanes with parked jobs. */
const INTERVAL = 5_000;
/** Milliseconds between two looks at a lane. */
const SHORTEST_WAIT = 10;

/**
 * The limits of lanes, which all processes share. A job that may not start is parked: it is delayed for long, and made due once a
 * limit lets it start. So it is fetched twice, however long it waits.
 */
export class SharedLimits {
  private readonly known = new RememberedLimits();
  /** The runs of this process in limited lanes, by id. */
  private readonly running = new Map<string, string>();
  /** By lane: when parked jobs are looked at again. */
  private readonly timers = new Map<string, CancelWake>();
  private readonly waking = new Set<Promise<void>>();
  private readonly admitted = new ScriptBatch<
    readonly [lane: string, id: string],
    readonly [isAdmitted: number, value: number]
  >(
    async (runs) =>
      (await ADMIT.run(this.queue, [this.countsFor, ...runs.flat()])) as [number, number][],
  );
  private stopInterval: CancelWake = () => {};
  private isStopped = false;

  /** @param lease - milliseconds */
  constructor(
    private readonly queue: Queue,
    private readonly clock: WebhookClock,
    private readonly lease: number,
  ) {}

  /** When a parked job is due, in epoch milliseconds. */
  get parkedUntil(): number {
    return this.clock.now() + LONGEST_WAIT;
  }

  /** Keeps extending the runs of this process, and wakes parked jobs whose process died. */
  start(): void {
    this.stopInterval();
    this.stopInterval = repeat(this.clock, INTERVAL, async () => {
      const runs = [...this.running].flatMap(([id, lane]) => [lane, id]);
      if (runs.length > 0) await EXTEND.run(this.queue, [this.countsFor, ...runs]);
      const client = await this.queue.getBackend().client;
      const lanes = await client.smembers(`${ownKey(this.queue)}:parkedLanes`);
      for (const lane of lanes) await this.wake(lane);
    });
  }

  stop(): void {
    this.isStopped = true;
    this.stopInterval();
    for (const cancel of this.timers.values()) cancel();
    this.timers.clear();
  }

  async record(deliveries: readonly EnqueuedDelivery[]): Promise<void> {
    for (const { delivery, limits } of deliveries) {
      if (limits !== undefined) await this.set(deliveryLane(delivery), limits);
    }
  }

  /** @returns `undefined` if the job may start; otherwise it was parked, and must be delayed until {@link parkedUntil} */
  async admit(job: DeliveryJob, lane: string): Promise<'started' | 'parked'> {
    const { id } = job.data.delivery;
    const [answer] = await this.admitted.add([[lane, id]]);
    const [isAdmitted, value] = answer!;
    if (isAdmitted === 1) {
      if (value === 1) this.running.set(id, lane);
      return 'started';
    }
    this.wakeIn(lane, value);
    return 'parked';
  }

  /** Ends a run. If that fails, the run counts until its entry expires. */
  async end(job: DeliveryJob, lane: string, run: DeliveryRun | undefined): Promise<void> {
    const { id } = job.data.delivery;
    const wasLimited = this.running.delete(id);
    const { limits } = run ?? {};
    if (limits !== undefined && (wasLimited || isLimited(limits))) await this.set(lane, limits);
    if (!wasLimited) return;
    const { overloadedUntil } = run ?? {};
    const pause = overloadedUntil === undefined ? '' : overloadedUntil - this.clock.now();
    const hasParked = (await END.run(this.queue, [lane, id, pause])) as number;
    if (hasParked === 1) await this.wake(lane);
  }

  /** @returns for each job whether it waits for a limit */
  async areParked(jobs: readonly DeliveryJob[]): Promise<readonly boolean[]> {
    if (jobs.length === 0) return [];
    const values = jobs.flatMap(({ data }) => [deliveryLane(data.delivery), data.delivery.id]);
    return ((await ARE_PARKED.run(this.queue, values)) as number[]).map((flag) => flag === 1);
  }

  /** Resolves when no job is being woken. @returns whether one was */
  async settled(): Promise<boolean> {
    const { size } = this.waking;
    await Promise.all(this.waking);
    return size > 0;
  }

  /** Milliseconds for which a run counts, unless it is extended. */
  private get countsFor(): number {
    return this.lease + 2 * INTERVAL;
  }

  async set(lane: string, limits: DeliveryLimits): Promise<void> {
    const now = this.clock.now();
    if (this.known.has(lane, limits, now)) return;
    const { concurrency = '', perSecond = '', burst = '', since = '' } = limits;
    const values = [lane, concurrency, perSecond, burst, since];
    const isChanged = (await SET_LIMITS.run(this.queue, values)) === 1;
    this.known.add(lane, limits, now);
    if (isChanged) await this.wake(lane);
  }

  /** Makes parked jobs due that may start. */
  async wake(lane: string): Promise<void> {
    const waking = this.wakeParked(lane)
      .catch(() => {})
      .finally(() => this.waking.delete(waking));
    this.waking.add(waking);
    await waking;
  }

  private async wakeParked(lane: string): Promise<void> {
    const [wait, ...ids] = (await WAKE.run(this.queue, [lane, WOKEN_AT_ONCE])) as [
      number,
      ...string[],
    ];
    const gone: string[] = [];
    for (const id of ids) {
      const job = (await this.queue.getJob(jobIdOf(id))) as DeliveryJob | undefined;
      if (job === undefined || job.finishedOn !== undefined) gone.push(id);
      else await inState(job, 'delayed', async () => job.promote());
    }
    if (gone.length > 0) await UNPARK.run(this.queue, [lane, ...gone]);
    this.wakeIn(lane, wait);
  }

  /** @param wait - milliseconds; -1 if a run has to end first */
  private wakeIn(lane: string, wait: number): void {
    if (wait < 0 || this.isStopped || this.timers.has(lane)) return;
    const at = this.clock.now() + Math.max(SHORTEST_WAIT, wait);
    const cancel = this.clock.wakeAt(at, () => {
      this.timers.delete(lane);
      void this.wake(lane);
    });
    this.timers.set(lane, cancel);
  }
}
