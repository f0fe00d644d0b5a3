import type { JobState, Queue } from 'bullmq';
import { FILTERED, filterable } from '../queue/delivery-list.js';
import type { DeliveryRecord, DeliveryStatus } from '../queue/webhook-delivery.js';
import type {
  DeliveryCountFilter,
  DeliveryCounts,
  DeliveryFilter,
  DeliveryPageRequest,
} from '../queue/webhook-queue.js';
import { INDEX_PENDING, type Turn, turnOf } from './key-turns.js';
import { jobIdOf } from './delivery-job.js';
import { EVEN_IF_FULL, ownKey, QueueScript, ScriptBatch } from './queue-script.js';

/** Deliveries that one step of a repair reads, with their payloads. */
const BATCH = 10;
/** Entries that are remembered for a repair. */
const MAX_UNWRITTEN = 10_000;
/** Milliseconds after which a payload is taken again that was not dropped. */
const TAKEN_FOR = 60_000;
/** Milliseconds for which an entry may be ahead of its job. */
export const SETTLING = 60_000;
/** Groups that one script counts: other commands wait for it. */
const GROUPS = 100;
const STATUSES: readonly DeliveryStatus[] = ['pending', 'delivered', 'dead'];

/*
 * Keys:
 *
 *   :entries     hash        id → its entry, as JSON
 *   :by:<facet>  sorted set  id → createdAt; a facet is "status:dead" or "tenant:acme"; the empty one holds every id
 *   :due:<group> sorted set  id → due time, of pending deliveries that wait for no other one of their key
 *   :held:<group> sorted set id → createdAt, of the other pending ones
 *   :groups      set         groups that have deliveries
 *   :payloads    sorted set  id → when it was delivered, of deliveries whose payload will be dropped
 */

/** A filter that can also name deliveries without a turn. */
export type HistoryFilter = Omit<DeliveryFilter, 'keyState'> & {
  readonly keyState?: DeliveryFilter['keyState'] | 'none';
};

/** What the sets know of a delivery. */
interface Entry {
  readonly createdAt: number;
  /** Epoch milliseconds; while it is pending. */
  readonly due?: number | undefined;
  readonly group: string;
  /** Its ordering key and lane, see {@link turnOf}. */
  readonly key?: string | undefined;
  readonly facets: readonly string[];
  /** When it was delivered, in epoch milliseconds; if its payload will be dropped. */
  readonly payload?: number | undefined;
  /** Set for a delivered one without a payload that could be dropped. */
  readonly dropped?: true | undefined;
  /** When the entry was written, in epoch milliseconds. */
  readonly at: number;
}

/**
 * ARGV: for each id, the id, the entry that it replaces ('' for none, '*' for any), and the new entry ('' to delete it). A group
 * without deliveries leaves nothing, also not the turns of its lane, see `FairTurns`.
 * Returns 1 for each entry that was changed, 0 for the others, and for one to delete that does not exist.
 */
const WRITE = new QueueScript(
  'webhooksWriteHistory',
  `${INDEX_PENDING}
local base, changed = KEYS[1], {}
for i = 1, #ARGV, 3 do
  local id, expected, text = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local known = redis.call('HGET', base .. ':entries', id) or ''
  changed[#changed + 1] = 0
  if (expected == '*' or expected == known) and (known ~= '' or text ~= '') then
    changed[#changed] = 1
    local old = known ~= '' and cjson.decode(known) or { facets = {} }
    local new = text ~= '' and cjson.decode(text) or { facets = {} }
    local had, has = {}, {}
    for _, facet in ipairs(old.facets) do had[facet] = true end
    for _, facet in ipairs(new.facets) do has[facet] = true end
    for _, facet in ipairs(old.facets) do
      if not has[facet] then redis.call('ZREM', base .. ':by:' .. facet, id) end
    end
    for _, facet in ipairs(new.facets) do
      if not had[facet] or old.createdAt ~= new.createdAt then redis.call('ZADD', base .. ':by:' .. facet, new.createdAt, id) end
    end
    if old.due and not new.due then
      redis.call('ZREM', base .. ':due:' .. old.group, id)
      redis.call('ZREM', base .. ':held:' .. old.group, id)
    end
    if new.due then index(base, id, new) end
    if old.payload or text == '' then redis.call('ZREM', base .. ':payloads', id) end
    if new.payload then redis.call('ZADD', base .. ':payloads', new.payload, id) end
    if text == '' then
      redis.call('HDEL', base .. ':entries', id)
      local of = base .. ':by:group:'
      if old.group and redis.call('EXISTS', of .. 'pending:' .. old.group, of .. 'delivered:' .. old.group, of .. 'dead:' .. old.group) == 0 then
        redis.call('SREM', base .. ':groups', old.group)
        local lane = string.gsub(old.group, ',null%]$', ']')
        lane = string.gsub(lane, '^%[null,null,', '["receiver",')
        redis.call('ZREM', base .. ':next', lane)
        redis.call('ZREM', base .. ':had', lane)
      end
    else
      redis.call('HSET', base .. ':entries', id, text)
      redis.call('SADD', base .. ':groups', new.group)
    end
  end
end
return changed`,
);

/**
 * ARGV: limit, since, until, createdAt and id of the delivery before the page, the part in the order of its key ('' for any, 'none'), facets.
 * Walks the smallest set, 10,000 ids at most, or 2,000 whose place in that order is looked up. Returns createdAt and id of the last
 * one walked ('' if none is left), then the ids that are in all sets and may have that part.
 */
const LIST = new QueueScript(
  'webhooksListHistory',
  `local limit, since = tonumber(ARGV[1]), tonumber(ARGV[2])
local sets = {}
for i = 7, #ARGV do sets[#sets + 1] = KEYS[1] .. ':by:' .. ARGV[i] end
local size = {}
for _, set in ipairs(sets) do size[set] = redis.call('ZCARD', set) end
table.sort(sets, function(a, b) return size[a] < size[b] end)
local set, start = sets[1], 0
if ARGV[3] ~= '' then start = redis.call('ZCOUNT', set, ARGV[3], '+inf') end
if ARGV[5] ~= '' then
  -- Its position, also if it was deleted since.
  local isThere = redis.call('ZSCORE', set, ARGV[5])
  if not isThere then
    ${EVEN_IF_FULL}
    redis.call('ZADD', set, ARGV[4], ARGV[5])
  end
  local rank = redis.call('ZREVRANK', set, ARGV[5])
  if not isThere then redis.call('ZREM', set, ARGV[5]) else rank = rank + 1 end
  start = math.max(start, rank)
end
local function hasPart(id)
  if ARGV[6] == '' then return true end
  local entry = redis.call('HGET', KEYS[1] .. ':entries', id)
  local key = entry and cjson.decode(entry).key
  local rank = key and redis.call('ZRANK', KEYS[1] .. ':turns:' .. key, id)
  if ARGV[6] == 'none' then return not rank end
  -- A dead delivery that has a turn blocks its key, or did until just now.
  return rank and (rank > 0 or ARGV[6] == 'blocking')
end
local found, score, id = {}, '', ''
for from = start, start + (ARGV[6] == '' and 9999 or 1999), 500 do
  local page = redis.call('ZREVRANGE', set, from, from + 499, 'WITHSCORES')
  for i = 1, #page, 2 do
    id, score = page[i], page[i + 1]
    if tonumber(score) < since then return { '', '', unpack(found) } end
    local matches = true
    for other = 2, #sets do
      if not redis.call('ZSCORE', sets[other], id) then matches = false break end
    end
    if matches and hasPart(id) then found[#found + 1] = id end
    if #found == limit then return { score, id, unpack(found) } end
  end
  if #page < 1000 then return { '', '', unpack(found) } end
end
return { score, id, unpack(found) }`,
);

/**
 * ARGV: since, until, the length of a step ('' to count all together), groups. Returns for each group and step that is not empty: the
 * number of the group and that of the step, from 0, then pending, delivered, dead, held and the earliest due time or ''.
 */
const COUNT = new QueueScript(
  'webhooksCountHistory',
  `local since, till, length = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local function stepOf(time) return length and math.floor((time - since) / length) or 0 end
local rows = {}
for i = 4, #ARGV do
  local steps = {}
  local function add(number, column, count)
    local step = steps[number] or { i - 4, number, 0, 0, 0, 0, '' }
    step[column], steps[number] = step[column] + count, step
  end
  local pending = KEYS[1] .. ':by:group:pending:' .. ARGV[i]
  local sets = { pending, KEYS[1] .. ':by:group:delivered:' .. ARGV[i], KEYS[1] .. ':by:group:dead:' .. ARGV[i], KEYS[1] .. ':held:' .. ARGV[i] }
  for position, set in ipairs(sets) do
    local count = redis.call('ZCOUNT', set, ARGV[1], '(' .. ARGV[2])
    if count > 0 and not length then
      add(0, position + 2, count)
    elseif count > 200 then
      for from = since, till - 1, length do
        local found = redis.call('ZCOUNT', set, from, string.format('(%.0f', math.min(from + length, till)))
        if found > 0 then add(stepOf(from), position + 2, found) end
      end
    elseif count > 0 then
      -- Cheaper than a count of each step.
      local page = redis.call('ZRANGEBYSCORE', set, ARGV[1], '(' .. ARGV[2], 'WITHSCORES')
      for k = 2, #page, 2 do add(stepOf(tonumber(page[k])), position + 2, 1) end
    end
  end
  local missing, from = 0, 0
  for _, step in pairs(steps) do
    if step[3] > step[6] then missing = missing + 1 end
    rows[#rows + 1] = step
  end
  while missing > 0 do
    local page = redis.call('ZRANGE', KEYS[1] .. ':due:' .. ARGV[i], from, from + 99, 'WITHSCORES')
    for k = 1, #page, 2 do
      local created = tonumber(redis.call('ZSCORE', pending, page[k]) or '')
      local step = created and created >= since and created < till and steps[stepOf(created)]
      if step and step[7] == '' and step[3] > step[6] then
        step[7], missing = page[k + 1], missing - 1
        if missing == 0 then break end
      end
    end
    from = from + 100
    if #page < 200 then break end
  end
end
return rows`,
);

/**
 * ARGV: a time, the most, a later time. Returns the ids of payloads that are older, and makes them due again later: if this process
 * dies, another one takes them.
 */
const TAKE_PAYLOADS = new QueueScript(
  'webhooksTakePayloads',
  `local set = KEYS[1] .. ':payloads'
local ids = redis.call('ZRANGEBYSCORE', set, '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
for _, id in ipairs(ids) do redis.call('ZADD', set, ARGV[3], id) end
return ids`,
);

/**
 * Small sorted sets by which deliveries are listed and counted.
 *
 * They are a hint, because no call of BullMQ takes part in a transaction of ours: callers read each listed job, and
 * drop what does not match. New deliveries get their entries before their jobs, and a change of a job is sent at the
 * same time as that of its entry. {@link repair} makes up for a crash or an error in between.
 */
export class DeliveryHistory {
  /** Ids whose entries may differ from their jobs, with the time since when, in epoch milliseconds. */
  readonly unwritten = new Map<string, number>();

  private readonly writes = new ScriptBatch<Change, number>(async (changes) => {
    const values = changes.flatMap(([id, old, entry]) => [
      id,
      old,
      entry === undefined ? '' : JSON.stringify(entry),
    ]);
    return (await WRITE.run(this.queue, values)) as number[];
  });

  /** @param dropsPayloads - whether the payloads of delivered deliveries are dropped before their deliveries */
  constructor(
    private readonly queue: Queue,
    private readonly dropsPayloads: boolean,
  ) {}

  /** Adds entries for ids that have none. @returns how many were added */
  async add(deliveries: readonly DeliveryRecord[], now: number): Promise<number> {
    return this.write(deliveries.map((each) => [each.delivery.id, '', this.entryOf(each, now)]));
  }

  /** Never rejects: what could not be written is repaired. */
  async set(delivery: DeliveryRecord, now: number): Promise<void> {
    const { id } = delivery.delivery;
    await this.write([[id, '*', this.entryOf(delivery, now)]]).catch(() => {
      this.addUnwritten([id], now);
    });
  }

  /** Beyond a number of ids, only the check of the whole history finds their entries. */
  addUnwritten(ids: readonly string[], now: number): void {
    for (const id of ids) if (this.unwritten.size < MAX_UNWRITTEN) this.unwritten.set(id, now);
  }

  /** Ids of deliveries that were delivered until a time, and whose payloads are still there. Others do not get them for a minute. */
  async takePayloads(until: number, limit: number): Promise<readonly string[]> {
    const values = [until, limit, until + TAKEN_FOR];
    return (await TAKE_PAYLOADS.run(this.queue, values)) as string[];
  }

  /** @returns how many entries this call has deleted */
  async delete(ids: readonly string[]): Promise<number> {
    return this.write(ids.map((id) => [id, '*', undefined]));
  }

  /**
   * Finds the entries that have to be repaired, by the states of their jobs alone: reading a job reads its payload.
   *
   * @returns also the turns of those that are pending
   */
  async check(
    ids: readonly string[],
    now: number,
  ): Promise<{ readonly wrong: string[]; readonly turns: readonly Turn[] }> {
    const wrong: string[] = [];
    const turns: Turn[] = [];
    if (ids.length === 0) return { wrong, turns };
    const client = await this.queue.getBackend().client;
    const entries = await client.hmget(`${ownKey(this.queue)}:entries`, ...ids);
    const states = await Promise.all(ids.map(async (id) => this.queue.getJobState(jobIdOf(id))));
    for (const [index, id] of ids.entries()) {
      const entry = parseEntry(entries[index]);
      if (entry === undefined || entry.at > now - SETTLING) continue;
      if (this.mayBeWrong(entry, states[index]!, now)) wrong.push(id);
      if (states[index] === 'unknown' || entry.due === undefined) continue;
      if (entry.key !== undefined) turns.push({ id, key: entry.key });
    }
    return { wrong, turns };
  }

  private mayBeWrong(entry: Entry, state: JobState | 'unknown', now: number): boolean {
    const { at, due, payload, dropped } = entry;
    const status = statusOf(entry);
    if (statusIn(state) !== status) return true;
    // It may have been delivered before payloads were to be dropped.
    if (status === 'delivered')
      return this.dropsPayloads && payload === undefined && dropped !== true;
    // Its time has passed, so it may be an old one; this is looked at once.
    const late = due === undefined ? Infinity : due + SETTLING;
    return state === 'delayed' && late <= now && at <= late;
  }

  /**
   * Makes entries agree with their jobs, except those written just now: their jobs may be about to change.
   *
   * @param read - reads the deliveries; `undefined` for one that is gone
   * @returns the turns of deliveries that are gone and were not delivered: nothing else will end them
   */
  async repair(
    ids: readonly string[],
    read: (ids: readonly string[]) => Promise<readonly (DeliveryRecord | undefined)[]>,
    now: number,
  ): Promise<readonly Turn[]> {
    const client = await this.queue.getBackend().client;
    const left: Turn[] = [];
    for (let from = 0; from < ids.length; from += BATCH) {
      const batch = ids.slice(from, from + BATCH);
      const entries = await client.hmget(`${ownKey(this.queue)}:entries`, ...batch);
      const deliveries = await read(batch);
      const changes = batch.flatMap((id, position): Change[] => {
        const known = entries[position] ?? '';
        const delivery = deliveries[position];
        const at = parseEntry(known)?.at ?? 0;
        return at > now - SETTLING ? [] : [[id, known, delivery && this.entryOf(delivery, now)]];
      });
      const changed = await this.writes.add(changes);
      left.push(
        ...changes.flatMap((change, index) => (changed[index] === 1 ? turnLeftBy(change) : [])),
      );
    }
    return left;
  }

  /** Ids that probably match, and where the next page begins; `undefined` after the last one. */
  async list(
    filter: HistoryFilter,
    { limit, after }: DeliveryPageRequest,
  ): Promise<{ ids: readonly string[]; next: DeliveryPageRequest['after'] }> {
    const { since = '-inf', until = '', keyState = '' } = filter;
    const facets = facetsOf(filter);
    const place = [after?.createdAt ?? '', after?.id ?? ''];
    const values = [
      limit,
      since,
      until,
      ...place,
      keyState,
      ...(facets.length > 0 ? facets : ['']),
    ];
    const [createdAt, id, ...ids] = (await LIST.run(this.queue, values)) as string[];
    return { ids, next: id === '' ? undefined : { createdAt: Number(createdAt), id: id! } };
  }

  async counts({ step, ...filter }: DeliveryCountFilter): Promise<readonly DeliveryCounts[]> {
    const client = await this.queue.getBackend().client;
    const all = await client.smembers(`${ownKey(this.queue)}:groups`);
    const groups = all.filter((group) => isIn(group, filter));
    const [first, last] = step === undefined ? ['-inf', '+inf'] : [0, 0];
    const { since = first, until = last, unfinished } = filter;
    const counts: DeliveryCounts[] = [];
    for (let from = 0; from < groups.length; from += GROUPS) {
      const values = [since, until, step ?? '', ...groups.slice(from, from + GROUPS)];
      for (const row of (await COUNT.run(this.queue, values)) as CountRow[]) {
        const [index, number, pending, done, dead, held, due] = row;
        const delivered = unfinished === true ? 0 : done;
        if (pending + delivered + dead === 0) continue;
        counts.push({
          ...groupOf(groups[from + index]!),
          at: step && Number(since) + number * step,
          pending,
          delivered,
          dead,
          held: held || undefined,
          oldestDue: due === '' ? undefined : Number(due),
        });
      }
    }
    return counts;
  }

  private entryOf(record: DeliveryRecord, at: number): Entry {
    const { delivery, status, nextAttemptAt: due, updatedAt, payloadDropped } = record;
    const group = groupIdOf(record);
    const key = turnOf(delivery)?.key;
    const facets = ['', `group:${status}:${group}`, ...facetsOf(filterable(record))];
    const hasPayload = status === 'delivered' && payloadDropped !== true;
    const isTracked = this.dropsPayloads && hasPayload && delivery.payload.bytes !== undefined;
    const payload = isTracked ? updatedAt : undefined;
    const isDropped = status === 'delivered' && this.dropsPayloads && !isTracked;
    const dropped = isDropped || undefined;
    return { createdAt: delivery.createdAt, due, group, key, facets, payload, dropped, at };
  }

  /** @returns how many entries were changed */
  private async write(changes: readonly Change[]): Promise<number> {
    const changed = await this.writes.add(changes);
    return changed.reduce((sum, one) => sum + one, 0);
  }
}

type CountRow = readonly [
  group: number,
  step: number,
  pending: number,
  delivered: number,
  dead: number,
  held: number,
  due: string,
];

type Change = readonly [id: string, replaces: string, entry: Entry | undefined];

function parseEntry(text: string | null | undefined): Entry | undefined {
  return text ? (JSON.parse(text) as Entry) : undefined;
}

/** @returns `undefined` without a job */
function statusIn(state: JobState | 'unknown'): DeliveryStatus | undefined {
  if (state === 'unknown') return undefined;
  if (state === 'completed') return 'delivered';
  return state === 'failed' ? 'dead' : 'pending';
}

function statusOf({ facets }: Entry): DeliveryStatus | undefined {
  return STATUSES.find((status) => facets.includes(`status:${status}`));
}

/** The turn of a delivery whose entry was deleted. */
function turnLeftBy([id, old, entry]: Change): Turn[] {
  const known = entry === undefined ? parseEntry(old) : undefined;
  if (known?.key === undefined || statusOf(known) === 'delivered') return [];
  return [{ id, key: known.key }];
}

type Group = Pick<DeliveryCounts, 'endpointId' | 'tenant' | 'receiver'>;

function groupOf(group: string): Group {
  const [endpointId, tenant, receiver] = JSON.parse(group) as (string | null)[];
  return {
    endpointId: endpointId ?? undefined,
    tenant: tenant ?? undefined,
    receiver: receiver ?? undefined,
  };
}

function isIn(group: string, filter: DeliveryCountFilter): boolean {
  const { endpointId, tenant, receiver } = groupOf(group);
  return (
    (filter.endpointId ?? endpointId) === endpointId &&
    (filter.tenant ?? tenant) === tenant &&
    (filter.receiver ?? receiver) === receiver
  );
}

function groupIdOf({ delivery }: DeliveryRecord): string {
  return JSON.stringify(
    [
      delivery.received === undefined ? delivery.endpointId : null,
      delivery.received === undefined ? delivery.tenant : null,
      delivery.received?.receiver,
    ].map((member) => member ?? null),
  );
}

function facetsOf(filter: HistoryFilter): string[] {
  return FILTERED.flatMap((name) => (filter[name] === undefined ? [] : `${name}:${filter[name]}`));
}
