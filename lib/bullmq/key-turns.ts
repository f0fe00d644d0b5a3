import type { Queue } from 'bullmq';
import { DAY } from '../clock/duration.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { type DeliveryJob, inState, isDelivered, jobIdOf } from './delivery-job.js';
import { type KeyOrder, type Turn, turnOf } from './key-order.js';

/** Milliseconds for which a job waits for its turn, unless it is woken. */
const LONGEST_WAIT = DAY;
/** Milliseconds after which a turn that a process has left open is checked. */
const CHECK_AFTER = 5_000;
/** Milliseconds after which such a turn ends if it has no job: that was never recorded, or removed. */
const RECORDED_WITHIN = 60_000;

/** The turn of a job; `undefined` if it takes none, or had it before. */
export function turnOfJob({ data }: DeliveryJob): (Turn & { sequence: number }) | undefined {
  const { delivery, holdsKey } = data;
  if (holdsKey !== true) return undefined;
  return { ...turnOf(delivery)!, sequence: delivery.sequence! };
}

/** Puts jobs off until their turn has come, and wakes them then. */
export class KeyTurns {
  /** Changes of turns that are not done. */
  private readonly changes = new Set<Promise<void>>();

  constructor(
    private readonly queue: Queue,
    private readonly order: KeyOrder,
    private readonly clock: WebhookClock,
  ) {}

  /** When a job that waits for its turn is due, in epoch milliseconds. */
  get waitsUntil(): number {
    return this.clock.now() + LONGEST_WAIT;
  }

  /** Whether the job may run now. One that takes no turn always may. */
  async start(job: DeliveryJob): Promise<boolean> {
    const turn = turnOfJob(job);
    if (turn === undefined) return true;
    return this.order.start(turn, turn.sequence);
  }

  /** Puts a job off that may not run yet. */
  async putOff(job: DeliveryJob, token: string): Promise<void> {
    await job.moveToDelayed(this.waitsUntil, token);
    // The first of its key may have ended before.
    if (!(await this.order.closeWaiting(turnOfJob(job)!))) await this.wakeJob(job);
  }

  /** Called before the first delivery of a key is put off. An error leaves its turn open. */
  async pause(job: DeliveryJob): Promise<void> {
    const turn = turnOfJob(job);
    if (turn !== undefined) await this.order.close([turn]).catch(() => {});
  }

  /** Called once the jobs of these turns are recorded. An error is made up for by {@link checkOpen}. */
  recorded(turns: readonly (Turn & { readonly waits: boolean })[]): void {
    if (turns.length > 0) this.inBackground(this.closeRecorded(turns));
  }

  /** Called once a job is completed or failed. An error is made up for by {@link checkOpen}. */
  ended(job: DeliveryJob): void {
    this.inBackground(this.settle(job));
  }

  /** Resolves when no turn is being changed. @returns whether one was */
  async settled(): Promise<boolean> {
    const { size } = this.changes;
    await Promise.all(this.changes);
    return size > 0;
  }

  private inBackground(work: Promise<void>): void {
    const change = work.catch(() => {}).finally(() => this.changes.delete(change));
    this.changes.add(change);
  }

  /** The delivery that one waits for may have ended before it had a job. */
  private async closeRecorded(
    turns: readonly (Turn & { readonly waits: boolean })[],
  ): Promise<void> {
    const late = turns.filter(({ waits }) => waits);
    const areWaiting = await this.order.areWaiting(late);
    for (const [index, { id }] of late.entries()) {
      if (areWaiting[index] === false) await this.wake(id);
    }
    await this.order.recorded(turns);
  }

  /** Ends a turn, and wakes the next job. @returns whether there was one to end */
  async end(turn: Turn): Promise<boolean> {
    const { hadTurn, next } = await this.order.finish(turn);
    if (next === undefined) return hadTurn;
    await this.wake(next);
    await this.order.close([turn]);
    return hadTurn;
  }

  /** Makes a job due that waits for its turn. */
  async wake(id: string): Promise<void> {
    const job = (await this.queue.getJob(jobIdOf(id))) as DeliveryJob | undefined;
    // Without a job, it is being recorded: `record` looks at its turn again afterwards.
    if (job !== undefined) await this.wakeJob(job);
  }

  /** Continues what processes that died have left. */
  async checkOpen(): Promise<void> {
    for (const list of ['recording', 'open'] as const) {
      for (const { at, ...turn } of await this.order.longListed(list, CHECK_AFTER)) {
        const job = (await this.queue.getJob(jobIdOf(turn.id))) as DeliveryJob | undefined;
        if (job === undefined && at > this.clock.now() - RECORDED_WITHIN) continue;
        if (job === undefined) await this.end(turn);
        else if (job.finishedOn === undefined) await this.wakeIfFirst(job, turn);
        else if (list === 'open') await this.settle(job);
        if (list === 'recording') await this.order.recorded([turn]);
      }
    }
  }

  /**
   * Finds the turns that these wait for and that have no job, for example because an operator removed it: {@link checkOpen}
   * ends them.
   */
  async checkWaiting(turns: readonly Turn[]): Promise<void> {
    const holders = await this.order.holders(turns);
    const states = await Promise.all(
      holders.map(async ({ id }) => this.queue.getJobState(jobIdOf(id))),
    );
    await this.order.doubt(holders.filter((_, index) => states[index] === 'unknown'));
  }

  private async settle(job: DeliveryJob): Promise<void> {
    const turn = turnOf(job.data.delivery);
    if (turn === undefined) return;
    const isBlocking = job.finishedOn !== undefined && !isDelivered(job) && job.data.holdsKey;
    if (isBlocking === true) await this.order.close([turn]);
    else if (job.finishedOn !== undefined) await this.end(turn);
  }

  private async wakeIfFirst(job: DeliveryJob, turn: Turn): Promise<void> {
    const [isWaiting] = await this.order.areWaiting([turn]);
    if (isWaiting === false) await this.wakeJob(job);
  }

  private async wakeJob(job: DeliveryJob): Promise<void> {
    const wait = job.data.dueAt - this.clock.now();
    await inState(job, 'delayed', async () => (wait > 0 ? job.changeDelay(wait) : job.promote()));
  }
}
