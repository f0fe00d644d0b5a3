import type { Queue } from 'bullmq';
import { QueueScript, ScriptBatch } from './queue-script.js';

/** The highest priority number of BullMQ. Deliveries that share it start in the order they were recorded. */
const LAST_TURN = 2_097_151;
/** The virtual time above which it starts again when no delivery waits. */
const RESTART_ABOVE = 1_000_000;

/*
 * Keys:
 *
 *   :turn   string      virtual time: the most turns that one lane has had
 *   :next   sorted set  lane → its last turn that was given out
 *   :had    sorted set  lane → turns that it has had
 */

/** ARGV: lanes. Returns the turn of each. */
const TAKE = new QueueScript(
  'webhooksTakeTurns',
  `local now = tonumber(redis.call('GET', KEYS[1] .. ':turn') or '0')
local turns = {}
for position, lane in ipairs(ARGV) do
  local last = tonumber(redis.call('ZSCORE', KEYS[1] .. ':next', lane) or '0')
  local turn = math.max(now, last) + 1
  redis.call('ZADD', KEYS[1] .. ':next', turn, lane)
  turns[position] = math.min(turn, ${LAST_TURN})
end
return turns`,
);

/** ARGV: lanes, each with the turn that it used. Returns the virtual time. Lanes that are far behind it are forgotten. */
const USE = new QueueScript(
  'webhooksUseTurn',
  `local before = tonumber(redis.call('GET', KEYS[1] .. ':turn') or '0')
local now = before
for i = 1, #ARGV, 2 do
  local had = tonumber(redis.call('ZSCORE', KEYS[1] .. ':had', ARGV[i]) or now)
  local turn = math.min(tonumber(ARGV[i + 1]), had + 1)
  redis.call('ZADD', KEYS[1] .. ':had', turn, ARGV[i])
  now = math.max(now, turn)
end
if now > before then
  redis.call('SET', KEYS[1] .. ':turn', now)
  redis.call('ZREMRANGEBYSCORE', KEYS[1] .. ':next', '-inf', now)
  redis.call('ZREMRANGEBYSCORE', KEYS[1] .. ':had', '-inf', now - 1000)
end
return now`,
);

const RESTART = new QueueScript(
  'webhooksRestartTurns',
  `return redis.call('DEL', KEYS[1] .. ':turn', KEYS[1] .. ':next', KEYS[1] .. ':had')`,
);

/**
 * Start-time fair queueing: the priority of a job is the virtual time at which its lane's turn comes, so a lane with a
 * backlog does not delay the others.
 *
 * Virtual time is the most turns of one lane. The turn of the last start would not do: jobs that were put off come
 * back out of order, and virtual time would leap over a whole backlog.
 */
export class FairTurns {
  /** The virtual time that was seen last. */
  private now = 0;

  private readonly taken = new ScriptBatch<string, number>(
    async (lanes) => (await TAKE.run(this.queue, lanes)) as number[],
  );
  private readonly used = new ScriptBatch<readonly [lane: string, turn: number], number>(
    async (turns) => {
      this.now = (await USE.run(this.queue, turns.flat())) as number;
      return turns.map(() => this.now);
    },
  );

  constructor(private readonly queue: Queue) {}

  async take(lanes: readonly string[]): Promise<readonly number[]> {
    return this.taken.add(lanes);
  }

  async use(lane: string, turn: number): Promise<void> {
    await this.used.add([[lane, turn]]);
  }

  /** Whether a turn has passed. A job that waits again then needs a new one, or it would start before those of other lanes. */
  isOver(turn: number): boolean {
    return turn <= this.now;
  }

  /** Called when no job waits, so that turns do not reach the highest priority number. */
  async restart(): Promise<void> {
    if (this.now < RESTART_ABOVE) return;
    this.now = 0;
    await RESTART.run(this.queue, []);
  }
}
