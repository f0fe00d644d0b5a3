import type { Queue } from 'bullmq';
import { DAY } from '../clock/duration.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { KEPT_UNUSED } from '../queue/queue-options.js';
import { type DeliveryFacts, deliveryLane } from '../queue/webhook-delivery.js';
import {
  type DeliveryJob,
  holdsKey,
  inState,
  isDelivered,
  jobIdOf,
  jobOf,
} from './delivery-job.js';
import { EVEN_IF_FULL, ownKey, QueueScript } from './queue-script.js';

/** Milliseconds for which a job waits for its turn, unless it is woken. */
const LONGEST_WAIT = DAY;
/** Milliseconds after which a turn that a process has left open is checked. */
const CHECK_AFTER = 5_000;
/** Milliseconds after which such a turn ends if it has no job: that was never recorded, or removed. */
const RECORDED_WITHIN = 60_000;
/** Turns that one check reads. */
const CHECKED = 500;

/*
 * Keys:
 *
 *   :turns:<key>   sorted set  id → number, of the deliveries that hold the key or wait for it
 *   :number:<key>  string      the last number
 *   :recording     sorted set  id and key → time: turns whose jobs may not have been recorded yet, or not woken
 *   :open          sorted set  id and key → time: turns that a process has begun to change: it runs, puts off or ends them
 */

/**
 * ARGV: now, whether the deliveries have no jobs, then id and key of each. Returns the number of each, negative if it waits; 0 if it
 * is known, and had its turn before.
 */
const ENTER = new QueueScript(
  'webhooksEnterOrder',
  `local base, now, numbers = KEYS[1], ARGV[1], {}
for i = 3, #ARGV, 2 do
  local id, key = ARGV[i], ARGV[i + 1]
  local number = redis.call('ZSCORE', base .. ':turns:' .. key, id)
  if not number and (ARGV[2] == '1' or redis.call('HEXISTS', base .. ':entries', id) == 0) then
    -- A series starts with the time, so that numbers never fall.
    number = (redis.call('GET', base .. ':number:' .. key) or now) + 1
    redis.call('SET', base .. ':number:' .. key, string.format('%.0f', number), 'PX', ${KEPT_UNUSED})
    redis.call('ZADD', base .. ':turns:' .. key, number, id)
    redis.call('ZADD', base .. ':recording', now, id .. '\\n' .. key)
  end
  local isFirst = number and redis.call('ZRANK', base .. ':turns:' .. key, id) == 0
  numbers[#numbers + 1] = (tonumber(number) or 0) * (isFirst and 1 or -1)
end
return numbers`,
);

/** ARGV: now, id, key, number. Opens the turn, and returns whether it has come. */
const START = new QueueScript(
  'webhooksStartTurn',
  `local turns = KEYS[1] .. ':turns:' .. ARGV[3]
redis.call('ZADD', turns, 'NX', ARGV[4], ARGV[2])
redis.call('ZADD', KEYS[1] .. ':open', ARGV[1], ARGV[2] .. '\\n' .. ARGV[3])
return redis.call('ZRANK', turns, ARGV[2]) == 0 and 1 or 0`,
);

/** Defines `index(base, id, entry)`: adds an entry of the history to those that are due, or to those that wait for another one of its key. */
export const INDEX_PENDING = `local function index(base, id, entry)
  local rank = entry.key and redis.call('ZRANK', base .. ':turns:' .. entry.key, id)
  local due, held = base .. ':due:' .. entry.group, base .. ':held:' .. entry.group
  if rank and rank > 0 then
    redis.call('ZREM', due, id)
    redis.call('ZADD', held, entry.createdAt, id)
  else
    redis.call('ZREM', held, id)
    redis.call('ZADD', due, entry.due, id)
  end
end`;

/** ARGV: id, key. Returns whether it had a turn, and the id whose turn comes next; the turn stays open until that one was woken. */
const FINISH = new QueueScript(
  'webhooksFinishTurn',
  `${INDEX_PENDING}
local turns = KEYS[1] .. ':turns:' .. ARGV[2]
local removed = redis.call('ZREM', turns, ARGV[1])
local next = redis.call('ZRANGE', turns, 0, 0)[1]
if not next then redis.call('ZREM', KEYS[1] .. ':open', ARGV[1] .. '\\n' .. ARGV[2]) end
local entry = next and redis.call('HGET', KEYS[1] .. ':entries', next)
if entry then
  entry = cjson.decode(entry)
  if entry.due then index(KEYS[1], next, entry) end
end
return { removed, next or '' }`,
);

/** ARGV: now, whether turns that are open keep their time, then id and key of each. */
const OPEN = new QueueScript(
  'webhooksOpenTurns',
  `${EVEN_IF_FULL}
for i = 3, #ARGV, 2 do
  local turn = ARGV[i] .. '\\n' .. ARGV[i + 1]
  local isOpen = ARGV[2] == '1' and redis.call('ZSCORE', KEYS[1] .. ':open', turn)
  if not isOpen then redis.call('ZADD', KEYS[1] .. ':open', ARGV[1], turn) end
end
return 1`,
);

/** ARGV: 'open' or 'recording', then id and key of each. */
const UNLIST = new QueueScript(
  'webhooksUnlistTurns',
  `for i = 2, #ARGV, 2 do
  redis.call('ZREM', KEYS[1] .. ':' .. ARGV[1], ARGV[i] .. '\\n' .. ARGV[i + 1])
end
return 1`,
);

/** ARGV: id, key. Closes a turn that waits for another one. Returns whether it does. */
const CLOSE_WAITING = new QueueScript(
  'webhooksCloseWaitingTurn',
  `local rank = redis.call('ZRANK', KEYS[1] .. ':turns:' .. ARGV[2], ARGV[1])
if not rank or rank == 0 then return 0 end
redis.call('ZREM', KEYS[1] .. ':open', ARGV[1] .. '\\n' .. ARGV[2])
return 1`,
);

/** ARGV: id and key of each. Returns for each whether it waits for another one. */
const WAITING = new QueueScript(
  'webhooksWaitingTurns',
  `local waiting = {}
for i = 1, #ARGV, 2 do
  local rank = redis.call('ZRANK', KEYS[1] .. ':turns:' .. ARGV[i + 1], ARGV[i])
  waiting[#waiting + 1] = rank and rank > 0 and 1 or 0
end
return waiting`,
);

/** ARGV: id and key of each. Returns for each the id of the delivery that it waits for, or ''. */
const HOLDERS = new QueueScript(
  'webhooksTurnHolders',
  `local holders = {}
for i = 1, #ARGV, 2 do
  local first = redis.call('ZRANGE', KEYS[1] .. ':turns:' .. ARGV[i + 1], 0, 0)[1]
  holders[#holders + 1] = first and first ~= ARGV[i] and first or ''
end
return holders`,
);

/** A delivery in the order of its key. */
export interface Turn {
  readonly id: string;
  readonly key: string;
}

/** The turn of a delivery, which it may have had before; `undefined` without an ordering key. */
export function turnOf(delivery: DeliveryFacts): Turn | undefined {
  const { id, orderingKey } = delivery;
  if (orderingKey === undefined) return undefined;
  return { id, key: JSON.stringify([deliveryLane(delivery), orderingKey]) };
}

/** The turn of a job; `undefined` if it takes none, or had it before. */
export function turnOfJob(job: DeliveryJob): (Turn & { sequence: number }) | undefined {
  const { delivery } = job.data;
  if (!holdsKey(job)) return undefined;
  return { ...turnOf(delivery)!, sequence: delivery.sequence! };
}

/**
 * The order of the deliveries with an ordering key. A job that is not the first of its key is put off; the process that ends
 * the turn of the first one wakes the next.
 *
 * A process may die between two commands. So a turn is listed as open, or as being recorded, before a process changes what
 * another delivery waits for, and until all that follows from the change is done. {@link checkOpen} continues what processes left
 * behind.
 */
export class KeyTurns {
  /** Changes of turns that are not done. */
  private readonly changes = new Set<Promise<void>>();

  constructor(
    private readonly queue: Queue,
    private readonly clock: WebhookClock,
  ) {}

  /** When a job that waits for its turn is due, in epoch milliseconds. */
  get waitsUntil(): number {
    return this.clock.now() + LONGEST_WAIT;
  }

  /**
   * Numbers deliveries, and adds them to the order of their keys. They are being recorded until {@link recorded} is called.
   *
   * @param areNew - whether none of them has a job; otherwise those in the history are known
   * @returns for each its number, and whether it waits; `undefined` for one that is known, and had its turn
   */
  async enter(
    turns: readonly Turn[],
    areNew: boolean,
  ): Promise<readonly ({ readonly sequence: number; readonly waits: boolean } | undefined)[]> {
    if (turns.length === 0) return [];
    const args = [this.clock.now(), areNew ? 1 : 0, ...values(turns)];
    const numbers = (await ENTER.run(this.queue, args)) as number[];
    return numbers.map((number) =>
      number === 0 ? undefined : { sequence: Math.abs(number), waits: number < 0 },
    );
  }

  /** Called once the jobs of these turns are recorded. An error is made up for by {@link checkOpen}. */
  recorded(turns: readonly (Turn & { readonly waits: boolean })[]): void {
    if (turns.length > 0) this.inBackground(this.closeRecorded(turns));
  }

  /** Opens the turn of a job. @returns whether the job may run now; one that takes no turn always may */
  async start(job: DeliveryJob): Promise<boolean> {
    const turn = turnOfJob(job);
    if (turn === undefined) return true;
    const { id, key, sequence } = turn;
    return (await START.run(this.queue, [this.clock.now(), id, key, sequence])) === 1;
  }

  /** Puts a job off that may not run yet. */
  async putOff(job: DeliveryJob, token: string): Promise<void> {
    await job.moveToDelayed(this.waitsUntil, token);
    // The first of its key may have ended before.
    const isWaiting = await CLOSE_WAITING.run(this.queue, values([turnOfJob(job)!]));
    if (isWaiting !== 1) await this.wakeJob(job);
  }

  /** Called before the first delivery of a key is put off. An error leaves its turn open. */
  async pause(job: DeliveryJob): Promise<void> {
    const turn = turnOfJob(job);
    if (turn !== undefined) await this.unlist('open', [turn]).catch(() => {});
  }

  /** Called once a job is completed or failed. An error is made up for by {@link checkOpen}. */
  ended(job: DeliveryJob): void {
    this.inBackground(this.settle(job));
  }

  /** Opens turns that are about to end. */
  async open(turns: readonly Turn[]): Promise<void> {
    if (turns.length > 0) await OPEN.run(this.queue, [this.clock.now(), 0, ...values(turns)]);
  }

  /** Ends a turn, and wakes the next job. @returns whether there was one to end */
  async end(turn: Turn): Promise<boolean> {
    const [removed, next] = (await FINISH.run(this.queue, values([turn]))) as [number, string];
    if (next !== '') {
      await this.wake(next);
      await this.unlist('open', [turn]);
    }
    return removed === 1;
  }

  /** @returns whether each waits for another one */
  async areWaiting(turns: readonly Turn[]): Promise<readonly boolean[]> {
    if (turns.length === 0) return [];
    return ((await WAITING.run(this.queue, values(turns))) as number[]).map((flag) => flag === 1);
  }

  /** Resolves when no turn is being changed. @returns whether one was */
  async settled(): Promise<boolean> {
    const { size } = this.changes;
    await Promise.all(this.changes);
    return size > 0;
  }

  /** Continues what processes that died have left. */
  async checkOpen(): Promise<void> {
    for (const list of ['recording', 'open'] as const) {
      for (const { at, ...turn } of await this.longListed(list)) {
        const job = await jobOf(this.queue, turn.id);
        if (job === undefined && at > this.clock.now() - RECORDED_WITHIN) continue;
        if (job === undefined) await this.end(turn);
        else if (job.finishedOn === undefined) {
          const [isWaiting] = await this.areWaiting([turn]);
          if (isWaiting === false) await this.wakeJob(job);
        } else if (list === 'open') await this.settle(job);
        if (list === 'recording') await this.unlist(list, [turn]);
      }
    }
  }

  /**
   * Finds the turns that these wait for and that have no job, for example because an operator removed it: {@link checkOpen}
   * ends them, unless the job is recorded meanwhile.
   */
  async checkWaiting(turns: readonly Turn[]): Promise<void> {
    if (turns.length === 0) return;
    const ids = (await HOLDERS.run(this.queue, values(turns))) as string[];
    const holders = new Map(turns.map(({ key }, index) => [key, { id: ids[index]!, key }]));
    const known = [...holders.values()].filter(({ id }) => id !== '');
    const states = await Promise.all(
      known.map(async ({ id }) => this.queue.getJobState(jobIdOf(id))),
    );
    const gone = known.filter((_, index) => states[index] === 'unknown');
    // A turn that is open already must not start its time again.
    if (gone.length > 0) await OPEN.run(this.queue, [this.clock.now(), 1, ...values(gone)]);
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
    const areWaiting = await this.areWaiting(late);
    for (const [index, { id }] of late.entries()) {
      if (areWaiting[index] === false) await this.wake(id);
    }
    await this.unlist('recording', turns);
  }

  private async settle(job: DeliveryJob): Promise<void> {
    const turn = turnOf(job.data.delivery);
    if (turn === undefined) return;
    const isDead = job.finishedOn !== undefined && !isDelivered(job);
    // It may have been skipped since its worker read it.
    if (isDead && holdsKey((await jobOf(this.queue, turn.id)) ?? job))
      await this.unlist('open', [turn]);
    else if (job.finishedOn !== undefined) await this.end(turn);
  }

  /** Makes a job due that waits for its turn. */
  private async wake(id: string): Promise<void> {
    const job = await jobOf(this.queue, id);
    // Without a job, it is being recorded: `closeRecorded` looks at its turn again afterwards.
    if (job !== undefined) await this.wakeJob(job);
  }

  private async wakeJob(job: DeliveryJob): Promise<void> {
    const { dueAt, delivery } = job.data;
    // A clock that was set back must not extend the delay with which it was recorded.
    const wait = dueAt - Math.max(this.clock.now(), delivery.createdAt);
    await inState(job, 'delayed', async () => (wait > 0 ? job.changeDelay(wait) : job.promote()));
  }

  /** Turns that have been listed for long, the oldest first, each with the time since when. */
  private async longListed(
    list: 'recording' | 'open',
  ): Promise<readonly (Turn & { readonly at: number })[]> {
    const client = await this.queue.getBackend().client;
    const members = await client.zrange(`${ownKey(this.queue)}:${list}`, 0, CHECKED - 1, {
      WITHSCORES: true,
    });
    const turns: (Turn & { readonly at: number })[] = [];
    for (let index = 0; index < members.length; index += 2) {
      const [member, at] = [members[index]!, Number(members[index + 1])];
      const end = member.indexOf('\n');
      turns.push({ id: member.slice(0, end), key: member.slice(end + 1), at });
    }
    return turns.filter(({ at }) => at <= this.clock.now() - CHECK_AFTER);
  }

  private async unlist(list: 'recording' | 'open', turns: readonly Turn[]): Promise<void> {
    if (turns.length > 0) await UNLIST.run(this.queue, [list, ...values(turns)]);
  }
}

function values(turns: readonly Turn[]): string[] {
  return turns.flatMap(({ id, key }) => [id, key]);
}
