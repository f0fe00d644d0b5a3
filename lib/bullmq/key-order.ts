import type { Queue } from 'bullmq';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { KEPT_UNUSED } from '../queue/queue-options.js';
import { deliveryLane, type StoredDelivery } from '../queue/webhook-delivery.js';
import type { DeliveryFacts } from '../queue/webhook-queue.js';
import { ownKey, QueueScript } from './queue-script.js';

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
  `for i = 3, #ARGV, 2 do
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
export function turnOf(delivery: DeliveryFacts | StoredDelivery): Turn | undefined {
  const { id, orderingKey } = delivery;
  if (orderingKey === undefined) return undefined;
  return { id, key: JSON.stringify([deliveryLane(delivery), orderingKey]) };
}

/**
 * The order of the deliveries with an ordering key. A job that is not the first of its key is put off; the process that ends
 * the turn of the first one wakes the next.
 *
 * A process may die between two commands. So a turn is listed as open, or as being recorded, before a process changes what
 * another delivery waits for, and until all that follows from the change is done. {@link longListed} returns what processes
 * left behind.
 */
export class KeyOrder {
  constructor(
    private readonly queue: Queue,
    private readonly clock: WebhookClock,
  ) {}

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
    const numbers = await ENTER.run(this.queue, [
      this.clock.now(),
      areNew ? 1 : 0,
      ...values(turns),
    ]);
    return (numbers as number[]).map((number) =>
      number === 0 ? undefined : { sequence: Math.abs(number), waits: number < 0 },
    );
  }

  /** The jobs of these turns exist, and each is due or is woken by the one before. */
  async recorded(turns: readonly Turn[]): Promise<void> {
    await this.unlist('recording', turns);
  }

  /** Opens the turn of a delivery. @returns whether it is the first of its key */
  async start({ id, key }: Turn, sequence: number): Promise<boolean> {
    return (await START.run(this.queue, [this.clock.now(), id, key, sequence])) === 1;
  }

  /** Ends a turn. @returns whether it had one, and the id of the next delivery, which has to be woken before `close` */
  async finish({
    id,
    key,
  }: Turn): Promise<{ readonly hadTurn: boolean; readonly next: string | undefined }> {
    const [removed, next] = (await FINISH.run(this.queue, [id, key])) as [number, string];
    return { hadTurn: removed === 1, next: next === '' ? undefined : next };
  }

  /** Opens turns that are about to end. */
  async open(turns: readonly Turn[]): Promise<void> {
    if (turns.length > 0) await OPEN.run(this.queue, [this.clock.now(), 0, ...values(turns)]);
  }

  /** Opens turns that seem to have no job, so that they end unless it is recorded meanwhile. */
  async doubt(turns: readonly Turn[]): Promise<void> {
    // A turn that is doubted again must not start its time again.
    if (turns.length > 0) await OPEN.run(this.queue, [this.clock.now(), 1, ...values(turns)]);
  }

  /** @returns the turns that others of these wait for, each once */
  async holders(turns: readonly Turn[]): Promise<readonly Turn[]> {
    if (turns.length === 0) return [];
    const ids = (await HOLDERS.run(this.queue, values(turns))) as string[];
    const holders = turns.map(({ key }, index) => [key, { id: ids[index]!, key }] as const);
    return [...new Map(holders.filter(([, { id }]) => id !== '')).values()];
  }

  async close(turns: readonly Turn[]): Promise<void> {
    await this.unlist('open', turns);
  }

  /** Closes a turn that waits for another one. @returns whether it does */
  async closeWaiting({ id, key }: Turn): Promise<boolean> {
    return (await CLOSE_WAITING.run(this.queue, [id, key])) === 1;
  }

  /** @returns whether each waits for another one */
  async areWaiting(turns: readonly Turn[]): Promise<readonly boolean[]> {
    if (turns.length === 0) return [];
    return ((await WAITING.run(this.queue, values(turns))) as number[]).map((flag) => flag === 1);
  }

  /** Turns that have been listed for some milliseconds, the oldest first, each with the time since when. */
  async longListed(
    list: 'recording' | 'open',
    ms: number,
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
    return turns.filter(({ at }) => at <= this.clock.now() - ms);
  }

  private async unlist(list: 'recording' | 'open', turns: readonly Turn[]): Promise<void> {
    if (turns.length > 0) await UNLIST.run(this.queue, [list, ...values(turns)]);
  }
}

function values(turns: readonly Turn[]): string[] {
  return turns.flatMap(({ id, key }) => [id, key]);
}
