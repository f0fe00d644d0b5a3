import { LEAST_RATE, LEAST_SHARE, RECOVERY } from '../queue/lane-limits.js';
import { KEPT_UNUSED } from '../queue/queue-options.js';
import { QueueScript } from './queue-script.js';

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
export const ADMIT = new QueueScript(
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
export const WAKE = new QueueScript(
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
export const END = new QueueScript(
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
export const SET_LIMITS = new QueueScript(
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
export const EXTEND = new QueueScript(
  'webhooksExtendRuns',
  `local time = redis.call('TIME')
local till = time[1] * 1000 + ARGV[1]
for i = 2, #ARGV, 2 do redis.call('ZADD', KEYS[1] .. ':started:' .. ARGV[i], 'XX', till, ARGV[i + 1]) end
return 1`,
);

/** ARGV: lane and id of each. Returns for each whether it is parked. */
export const ARE_PARKED = new QueueScript(
  'webhooksAreParked',
  `local result = {}
for i = 1, #ARGV, 2 do
  result[#result + 1] = redis.call('ZSCORE', KEYS[1] .. ':parked:' .. ARGV[i], ARGV[i + 1]) and 1 or 0
end
return result`,
);

/** ARGV: lane, ids. Forgets parked deliveries that have no job any more. */
export const UNPARK = new QueueScript(
  'webhooksUnpark',
  `for i = 2, #ARGV do redis.call('ZREM', KEYS[1] .. ':parked:' .. ARGV[1], ARGV[i]) end
return 1`,
);
