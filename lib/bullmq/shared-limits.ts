import type { Queue } from 'bullmq';
import { DAY } from '../clock/duration.js';
import { type CancelWake, repeat, type WebhookClock } from '../clock/webhook-clock.js';
import {
  isLimited,
  LEAST_RATE,
  LEAST_SHARE,
  RECOVERY,
  RememberedLimits,
} from '../queue/lane-limits.js';
import { KEPT_UNUSED } from '../queue/queue-options.js';
import { type DeliveryLimits, type DeliveryRun, deliveryLane } from '../queue/webhook-delivery.js';
import type { EnqueuedDelivery } from '../queue/webhook-queue.js';
import { type DeliveryJob, inState, jobOf } from './delivery-job.js';
import { ownKey, QueueScript, ScriptBatch } from './queue-script.js';

/** Milliseconds for which a parked job waits, unless it is woken. */
const LONGEST_WAIT = DAY;
/** Parked jobs that are woken at once. */
const WOKEN_AT_ONCE = 100;
/** Milliseconds between two extensions of the own runs, and between two looks at lanes with parked jobs. */
const INTERVAL = 5_000;
/** Milliseconds between two looks at a lane. */
const SHORTEST_WAIT = 10;

/*
 * Keys:
 *
 *   :limit:<lane>    hash        its limits; `fullAt`, when all tokens are available again; `token`, its milliseconds; the pause and the part of the rate
 *                                that an overload has left; `place`, the last one given out. It expires without use
 *   :started:<lane>  sorted set  id → time until which a run counts; a process extends that of its own runs
 *   :parked:<lane>   sorted set  id → place, of the deliveries that wait for a limit
 *   :parkedLanes     set         lanes with parked deliveries
 *
 * Times are by the clock of the server, in milliseconds.
 */

/** Reads the limit of `lane` as `l`, with the time, and how many runs may start. */
const READ = `local base = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local limit, started, parked = base .. ':limit:' .. lane, base .. ':started:' .. lane, base .. ':parked:' .. lane
local fields = redis.call('HMGET', limit, 'concurrency', 'perSecond', 'burst', 'fullAt', 'pausedUntil', 'share', 'slowedAt', 'token')
local l = {}
for i, name in ipairs({ 'concurrency', 'perSecond', 'burst', 'fullAt', 'pausedUntil', 'share', 'slowedAt', 'token' }) do
  l[name] = tonumber(fields[i] or '')
end
local function shareAt(at) return math.min(1, (l.share or 1) + math.max(0, at - (l.slowedAt or 0)) / ${RECOVERY}) end
local function tokenOf(perSecond, share) return 1000 / (math.max(perSecond, ${LEAST_RATE}) * share) end
local nextToken = l.perSecond and tokenOf(l.perSecond, shareAt(now))
local token = l.perSecond and (l.token or nextToken)
-- A pause ends without a burst.
local usedTokens = token and math.max(0, (l.fullAt or 0) - now, (l.pausedUntil or 0) + (l.burst - 1) * token - now) / token
redis.call('ZREMRANGEBYSCORE', started, '-inf', now)
local function freeNow()
  if (l.pausedUntil or 0) > now then return 0 end
  local free = math.huge
  if l.concurrency then free = l.concurrency - redis.call('ZCARD', started) end
  if token then free = math.min(free, math.floor(l.burst - usedTokens + 1e-6)) end
  return math.max(0, free)
end
-- Milliseconds until time alone lets another run start; -1 if one has to end first.
local function waitNow()
  if l.concurrency and redis.call('ZCARD', started) >= l.concurrency then return -1 end
  local at = l.pausedUntil or 0
  if token then at = math.max(at, (l.fullAt or 0) - (l.burst - 1) * token) end
  return math.max(0, math.ceil(at - now))
end
`;

/** Reads the limit of the lane that the first argument names. */
const READ_LANE = `local lane = ARGV[1]
${READ}`;

/**
 * ARGV: milliseconds for which a run counts, then lane and id of each delivery. Returns for each 1 and whether the lane is limited if
 * it may start, or 0 and a wait.
 */
const ADMIT = new QueueScript(
  'webhooksAdmit',
  `local function admit(lane, id)
if redis.call('PEXPIRE', KEYS[1] .. ':limit:' .. lane, ${KEPT_UNUSED}) == 0 then return { 1, 0 } end
${READ}
local place = redis.call('ZSCORE', parked, id)
-- A run whose process has died does not count against it, and it is repeated first.
local isRepeated = redis.call('ZREM', started, id) == 1
local before = isRepeated and 0 or place and redis.call('ZRANK', parked, id) or redis.call('ZCARD', parked)
if freeNow() > before then
  redis.call('ZREM', parked, id)
  redis.call('ZADD', started, now + ARGV[1], id)
  if token then
    redis.call('HSET', limit, 'token', nextToken, 'fullAt', string.format('%.3f', now + (usedTokens + 1) * nextToken))
  end
  return { 1, 1 }
end
if not place then redis.call('ZADD', parked, redis.call('HINCRBY', limit, 'place', 1), id) end
redis.call('SADD', base .. ':parkedLanes', lane)
return { 0, waitNow() }
end
local answers = {}
for i = 2, #ARGV, 2 do answers[#answers + 1] = admit(ARGV[i], ARGV[i + 1]) end
return answers`,
);

/** ARGV: lane, the most. Returns a wait, then the ids of the parked deliveries that may start now. */
const WAKE = new QueueScript(
  'webhooksWakeParked',
  `${READ_LANE}
local count = math.min(freeNow(), tonumber(ARGV[2]))
local result = { waitNow() }
if redis.call('ZCARD', parked) == 0 then
  redis.call('SREM', base .. ':parkedLanes', lane)
  return { -1 }
end
if count > 0 then
  for _, id in ipairs(redis.call('ZRANGE', parked, 0, count - 1)) do result[#result + 1] = id end
end
return result`,
);

/** ARGV: lane, id, milliseconds of an overload or ''. Returns whether deliveries are parked. */
const END = new QueueScript(
  'webhooksEndRun',
  `${READ_LANE}
redis.call('ZREM', started, ARGV[2])
local pause = tonumber(ARGV[3])
if pause then
  local share, till = l.share or 1, math.max(l.pausedUntil or 0, now + pause)
  if (l.pausedUntil or 0) <= now then share = math.max(${LEAST_SHARE}, shareAt(now) / 2) end
  redis.call('HSET', limit, 'share', share, 'pausedUntil', till, 'slowedAt', till)
end
return redis.call('EXISTS', parked)`,
);

/**
 * ARGV: lane, concurrency, perSecond, burst, since: '' for none. Returns 1 if they are other limits than before, or 0. Another `since`
 * ends a pause and the slower rate of an overload; tokens that are used stay used.
 */
const SET_LIMITS = new QueueScript(
  'webhooksSetLimits',
  `${READ_LANE}
local names = { 'concurrency', 'perSecond', 'burst', 'since' }
local isKnown = redis.call('EXISTS', limit) == 1
if not isKnown and ARGV[2] == '' and ARGV[3] == '' then return 0 end
local isChanged = not isKnown
local share = shareAt(now)
if redis.call('HGET', limit, 'since') ~= ARGV[5] then
  redis.call('HDEL', limit, 'pausedUntil', 'share', 'slowedAt')
  share = 1
end
for i, name in ipairs(names) do
  if redis.call('HGET', limit, name) ~= ARGV[i + 1] then
    redis.call('HSET', limit, name, ARGV[i + 1])
    isChanged = true
  end
end
redis.call('PEXPIRE', limit, ${KEPT_UNUSED})
if not isChanged then return 0 end
redis.call('HDEL', limit, 'token', 'fullAt')
if token and ARGV[3] ~= '' then
  local newToken = tokenOf(tonumber(ARGV[3]), share)
  local used = math.max(0, (l.fullAt or 0) - now) / token
  redis.call('HSET', limit, 'token', newToken, 'fullAt', string.format('%.3f', now + used * newToken))
end
return 1`,
);

/** ARGV: milliseconds for which runs count, then lane and id of each. Extends those that have not ended. */
const EXTEND = new QueueScript(
  'webhooksExtendRuns',
  `local time = redis.call('TIME')
local till = time[1] * 1000 + ARGV[1]
for i = 2, #ARGV, 2 do redis.call('ZADD', KEYS[1] .. ':started:' .. ARGV[i], 'XX', till, ARGV[i + 1]) end
return 1`,
);

/** ARGV: lane and id of each. Returns for each whether it is parked. */
const ARE_PARKED = new QueueScript(
  'webhooksAreParked',
  `local result = {}
for i = 1, #ARGV, 2 do
  result[#result + 1] = redis.call('ZSCORE', KEYS[1] .. ':parked:' .. ARGV[i], ARGV[i + 1]) and 1 or 0
end
return result`,
);

/** ARGV: lane, ids. Forgets parked deliveries that have no job any more. */
const UNPARK = new QueueScript(
  'webhooksUnpark',
  `for i = 2, #ARGV do redis.call('ZREM', KEYS[1] .. ':parked:' .. ARGV[1], ARGV[i]) end
return 1`,
);

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

  /** @returns whether the job may start; otherwise it was parked, and must be delayed until {@link parkedUntil} */
  async admit(job: DeliveryJob, lane: string): Promise<boolean> {
    const { id } = job.data.delivery;
    const [answer] = await this.admitted.add([[lane, id]]);
    const [isAdmitted, value] = answer!;
    if (isAdmitted === 1) {
      if (value === 1) this.running.set(id, lane);
      return true;
    }
    this.wakeIn(lane, value);
    return false;
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
      const job = await jobOf(this.queue, id);
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
