import { DelayedError, UnrecoverableError } from 'bullmq';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { waitAfterThrow } from '../queue/retry-schedule.js';
import { type DeliveryStatus, type DeliveryRun, deliveryLane } from '../queue/webhook-delivery.js';
import type { DeliveryHandler } from '../queue/webhook-queue.js';
import type { DeliveryHistory } from './delivery-history.js';
import {
  answerRow,
  dataAfter,
  type DeliveredResult,
  type DeliveryJob,
  deliveryOf,
  failureText,
  holdsDelivery,
  isEvicted,
  recordOf,
  withDiedRuns,
} from './delivery-job.js';
import type { KeyTurns } from './key-turns.js';
import type { FairTurns } from './fair-turns.js';
import type { LaneGate } from './lane-gate.js';
import type { SharedLimits } from './shared-limits.js';

interface DeliveryRunnerParts {
  readonly handler: DeliveryHandler;
  readonly lanes: LaneGate;
  readonly turns: FairTurns;
  readonly keys: KeyTurns;
  readonly limits: SharedLimits;
  readonly history: DeliveryHistory;
  readonly onError: (error: Error) => void;
  /** Milliseconds. */
  readonly lease: number;
  readonly clock: WebhookClock;
}

/**
 * Takes a job of BullMQ through one run to its recorded outcome.
 *
 * The outcome and its attempt are one write: the result of a completed job, whose answer is in its log, or the data of any other,
 * which is written while the job's lock is held. BullMQ moves the job afterwards; after a crash in between, the job runs again, and a
 * dead one is only moved.
 */
export class DeliveryRunner {
  running = 0;
  /** Jobs whose handlers run, by id. */
  private readonly active = new Map<string, DeliveryJob>();

  constructor(private readonly parts: DeliveryRunnerParts) {}

  async process(job: DeliveryJob, token: string): Promise<DeliveredResult> {
    const { lanes, turns, keys, limits } = this.parts;
    if (isEvicted(job)) this.removeEvicted(job);
    if (!holdsDelivery(job)) return this.keepForeign(job, token);
    if (job.data.status === 'dead') throw new UnrecoverableError(failureText(job.data));
    if (!(await keys.start(job))) {
      await keys.putOff(job, token);
      throw new DelayedError();
    }
    const lane = deliveryLane(job.data.delivery);
    const slot = await lanes.enter(lane, job.priority);
    if (slot === undefined) return this.putOff(job, token, lane, lanes.retryAt(lane));
    let mayStart = false;
    try {
      mayStart = await limits.admit(job, lane);
    } finally {
      if (!mayStart) lanes.leave(slot, false);
    }
    if (!mayStart) return this.park(job, token, lane);
    const id = job.id!;
    const data = withDiedRuns(job);
    const before = this.active.get(id);
    // Its lock was lost, but the process that runs it has not died: that run must not count.
    const isOwn = before?.attemptsStarted === job.attemptsStarted - 1;
    job.data = isOwn ? { ...data, attempts: before.data.attempts } : data;
    let run: DeliveryRun | undefined;
    this.running++;
    this.active.set(id, job);
    try {
      run = await this.parts.handler(deliveryOf(job.data), job.data.attempts + 1);
    } catch {
      // The handler has logged the error; the delivery runs again.
    } finally {
      this.running--;
      if (this.active.get(id) === job) this.active.delete(id);
      lanes.leave(slot, wasAttempt(run));
    }
    limits.end(job, lane, run).catch(() => {});
    // An error costs the lane nothing, and it is no reason to keep the outcome waiting.
    if (wasAttempt(run)) turns.use(lane, job.priority).catch(() => {});
    return this.settle(job, token, lane, run);
  }

  /** Its delivery is lost; the check of the history ends its turn. */
  private removeEvicted(job: DeliveryJob): never {
    const what = `Redis has evicted a delivery from the queue "${job.queueName}", and it is lost`;
    this.parts.onError(new Error(`${what}; set "maxmemory-policy noeviction"`));
    job.opts.removeOnFail = true;
    throw new UnrecoverableError('evicted');
  }

  /** Delays a job without a delivery: a failed one would be lost, and a later version may read it. */
  private async keepForeign(job: DeliveryJob, token: string): Promise<never> {
    const { onError, clock } = this.parts;
    const what = `a job in the queue "${job.queueName}" holds no delivery that can be read, and stays there`;
    onError(new Error(`${what}; use the queue for deliveries only, and remove other jobs`));
    await job.moveToDelayed(clock.now() + waitAfterThrow(job.attemptsStarted), token);
    throw new DelayedError();
  }

  /** Delays a job until the limits of its lane let it start. */
  private async park(job: DeliveryJob, token: string, lane: string): Promise<never> {
    const { limits } = this.parts;
    try {
      return await this.putOff(job, token, lane, limits.parkedUntil);
    } finally {
      // A run may have ended before the job was delayed.
      void limits.wake(lane);
    }
  }

  private async settle(
    job: DeliveryJob,
    token: string,
    lane: string,
    run: DeliveryRun | undefined,
  ): Promise<DeliveredResult> {
    const { clock, lease } = this.parts;
    const updatedAt = clock.now();
    if (run?.outcome.type === 'delivered') {
      this.index(job, 'delivered');
      const row = run.attempt && answerRow(run.attempt);
      // A lost answer is better than a repeated request.
      if (row !== undefined) void job.log(row).catch(() => {});
      const attempt = run.attempt && { ...run.attempt, answer: undefined };
      return { attempts: job.data.attempts + 1, updatedAt, attempt };
    }
    const data = dataAfter(job.data, run, updatedAt);
    // A worker whose lease has expired must not overwrite what another one has recorded.
    if ((await job.extendLock(token, lease)) !== 1) throw new Error('The lease has expired.');
    this.index(job, data.status, data.dueAt);
    await job.updateData(data);
    if (data.status === 'dead') throw new UnrecoverableError(failureText(data));
    return this.putOff(job, token, lane, data.dueAt);
  }

  /** Sent together with the change of the job: waiting for it would give a crash more time to repeat the attempt. */
  private index(job: DeliveryJob, status: DeliveryStatus, dueAt?: number): void {
    const now = this.parts.clock.now();
    const { delivery, attempts } = recordOf(job);
    const nextAttemptAt = status === 'pending' ? dueAt : undefined;
    void this.parts.history.set({ delivery, status, attempts, updatedAt: now, nextAttemptAt }, now);
  }

  private async putOff(
    job: DeliveryJob,
    token: string,
    lane: string,
    until: number,
  ): Promise<never> {
    const { keys, turns } = this.parts;
    await keys.pause(job);
    if (turns.isOver(job.priority)) {
      const [priority] = await turns.take([lane]);
      await job.changePriority({ priority: priority! });
    }
    await job.moveToDelayed(until, token);
    throw new DelayedError();
  }
}

/** Whether a run made a request, so that its duration says something about the endpoint. */
function wasAttempt(run: DeliveryRun | undefined): boolean {
  return run !== undefined && run.outcome.type !== 'defer';
}
