import { createHash } from 'node:crypto';

/** The part of an ioredis client that is used: `new Redis(…)` or `new Cluster(…)`. */
export interface IoRedisClient {
  /** Runs a script that the server has, by its digest. */
  evalsha(sha1: string, keyCount: number, ...args: string[]): Promise<unknown>;
  /** Runs a script and stores it on the server. */
  eval(script: string, keyCount: number, ...args: string[]): Promise<unknown>;
}

/** The part of a node-redis client that is used: `createClient(…)`, connected. */
export interface NodeRedisClient {
  /** Runs a script that the server has, by its digest. */
  evalSha(sha1: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>;
  /** Runs a script and stores it on the server. */
  eval(script: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>;
}

/** A client of either library, or an object with the same methods. */
export type RedisClient = IoRedisClient | NodeRedisClient;

export function isRedisClient(value: unknown): value is RedisClient {
  if (typeof value !== 'object' || value === null) return false;
  const client = value as Partial<Record<'eval' | 'evalsha' | 'evalSha', unknown>>;
  const runsByDigest = typeof client.evalsha === 'function' || typeof client.evalSha === 'function';
  return typeof client.eval === 'function' && runsByDigest;
}

/** A Lua script, sent in full only if the server does not have it. */
export class RedisScript {
  private readonly sha1: string;

  constructor(private readonly source: string) {
    this.sha1 = createHash('sha1').update(source).digest('hex');
  }

  async run(client: RedisClient, keys: string[], values: string[]): Promise<unknown> {
    try {
      return await this.send(client, keys, values, false);
    } catch (error) {
      // A restarted server or a promoted replica has no scripts.
      if (!(error instanceof Error) || !error.message.startsWith('NOSCRIPT')) throw error;
      return this.send(client, keys, values, true);
    }
  }

  private async send(
    client: RedisClient,
    keys: string[],
    values: string[],
    inFull: boolean,
  ): Promise<unknown> {
    if (isNodeRedis(client)) {
      const options = { keys, arguments: values };
      return inFull ? client.eval(this.source, options) : client.evalSha(this.sha1, options);
    }
    return inFull
      ? client.eval(this.source, keys.length, ...keys, ...values)
      : client.evalsha(this.sha1, keys.length, ...keys, ...values);
  }
}

/** Documented members of both clients that concern lost connections; another client may have none of them. */
interface ConnectionMembers {
  /** Of ioredis. */
  readonly status?: string;
  readonly isCluster?: boolean;
  disconnect?(reconnect: boolean): void;
  /** Of node-redis. */
  readonly isReady?: boolean;
  destroy?(): void;
  connect?(): Promise<unknown>;
  readonly options?: TimeoutOptions & {
    readonly retryStrategy?: RetryStrategy;
    readonly clusterRetryStrategy?: RetryStrategy;
    readonly redisOptions?: TimeoutOptions;
    readonly socket?: TimeoutOptions & { readonly reconnectStrategy?: unknown };
  };
}

type RetryStrategy = ((times: number) => unknown) | null;

interface TimeoutOptions {
  readonly socketTimeout?: number;
}

/**
 * Replaces a connection on which a command got no answer: if its host has vanished, no error ever ends it. Also one whose server has
 * become a replica without closing it. A client that does not reconnect is left as it is.
 */
export function reconnect(client: RedisClient): void {
  const members = client as ConnectionMembers;
  if (!canReconnect(client)) return;
  if (isNodeRedis(client)) {
    if (members.isReady !== true) return;
    members.destroy?.();
    // Until it is connected again, commands fail, and the client retries by its own strategy.
    members.connect?.().catch(() => {});
  } else if (members.status === 'ready' || members.status === 'connect') {
    members.disconnect?.(true);
  }
}

/** Whether a client connects again after a lost connection; if not, it must never lose one here. */
export function canReconnect(client: object): boolean {
  const { isCluster, options } = client as ConnectionMembers;
  if (options?.socket?.reconnectStrategy === false) return false;
  const strategy = isCluster === true ? options?.clusterRetryStrategy : options?.retryStrategy;
  return strategy === undefined || typeof strategy?.(1) === 'number';
}

/**
 * Reports a client that keeps a connection whose server has vanished, or never replaces it. With a `commandTimeout` it keeps it too:
 * each command fails in time, until the operating system gives the connection up.
 *
 * @param ms - the timeout that the advice names
 * @returns the rest of a sentence about the client, with what to set; `undefined` if it has both, or if its options are unknown
 */
export function timeoutAdvice(client: RedisClient, ms: string): string | undefined {
  const { isCluster, options } = client as ConnectionMembers;
  if (options === undefined) return undefined;
  const socket = isCluster === true ? options.redisOptions : (options.socket ?? options);
  if (socket?.socketTimeout === undefined) {
    let remedy = `socketTimeout: ${ms}`;
    if (isCluster === true) remedy = `redisOptions: { ${remedy} }`;
    if (isNodeRedis(client)) {
      remedy = `socket: { ${remedy}, ${RECONNECTING} }, with a shorter pingInterval`;
    }
    return `has no socket timeout: if its server vanishes, commands of the application wait or fail for many minutes. Set ${remedy}.`;
  }
  if (!isNodeRedis(client) || options.socket?.reconnectStrategy !== undefined) return undefined;
  return `has a socketTimeout and no reconnectStrategy: by default, node-redis closes the client at a timeout, and every later command fails. Set socket: { ${RECONNECTING} }.`;
}

/** Of node-redis: by default, it does not connect again after a socket timeout. */
const RECONNECTING = 'reconnectStrategy: (retries) => Math.min(retries * 50, 2_000)';

/** Reports the `maxmemory-policy` of a server that evicts keys, given its answer to INFO. */
export function evictionPolicy(info: string): string | undefined {
  const policy = /^maxmemory_policy:(\S+)/m.exec(info)?.[1];
  return policy === 'noeviction' ? undefined : policy;
}

function isNodeRedis(client: RedisClient): client is NodeRedisClient {
  // Only node-redis has `evalSha`; ioredis has `evalsha`.
  return typeof (client as Partial<NodeRedisClient>).evalSha === 'function';
}

/*
 * Keys:
 *
 *   event  hash    s: 'r' reserved or 'd' done    f: fingerprint    o: owner, while reserved
 *                  k: keep until, in milliseconds of the server's clock
 *   token  string  the event's key; only if the token's id differs from the event's
 *
 * Both expire by themselves: with the lease while reserved, at `k` once done. The receiver passes durations, which the
 * scripts add to the server's clock, so the clocks of the processes need not agree.
 *
 * A full server refuses a script whose first change may need memory. So those for known events begin with one that needs none.
 */

const NOW = `local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
`;

/** Reserves a claim's keys. KEYS: event, token, event named by the token's key. */
export const RESERVE = new RedisScript(`${NOW}
local fingerprint, owner = ARGV[1], ARGV[2]
local lease, keep = tonumber(ARGV[3]), now + tonumber(ARGV[4])
local plain = KEYS[1] == KEYS[3]
local user = redis.call('GET', KEYS[2])
if user and user ~= KEYS[1] then return {'conflict'} end
if not plain and redis.call('EXISTS', KEYS[3]) == 1 then return {'conflict'} end
local known = redis.call('HMGET', KEYS[1], 's', 'f', 'k', 'o')
if known[1] then
  if known[2] ~= fingerprint then return {'conflict'} end
  -- A client sends a command again if its connection ended before the answer.
  if known[1] == 'r' and known[4] == owner then return {'reserved'} end
  if keep > tonumber(known[3]) then
    if known[1] == 'd' then redis.call('PEXPIREAT', KEYS[1], keep) end
    redis.call('HSET', KEYS[1], 'k', keep)
  end
  if known[1] == 'd' then return {'done'} end
  return {'in-progress', redis.call('PTTL', KEYS[1])}
end
redis.call('HSET', KEYS[1], 's', 'r', 'f', fingerprint, 'o', owner, 'k', keep)
redis.call('PEXPIRE', KEYS[1], lease)
if not plain then redis.call('SET', KEYS[2], KEYS[1], 'PX', lease) end
return {'reserved'}
`);

const HELD = `local held = redis.call('HMGET', KEYS[1], 's', 'o', 'k')
if held[1] ~= 'r' or held[2] ~= ARGV[1] then return 0 end
`;

/** KEYS: event, token. ARGV: owner, lease. */
export const EXTEND = new RedisScript(`${HELD}
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
`);

/** KEYS: event, token. ARGV: owner. */
export const COMMIT = new RedisScript(`${HELD}
redis.call('HDEL', KEYS[1], 'o')
redis.call('HSET', KEYS[1], 's', 'd')
redis.call('PEXPIREAT', KEYS[1], held[3])
redis.call('PEXPIREAT', KEYS[2], held[3])
return 1
`);

/** KEYS: one that nothing reads. */
export const CHECK = new RedisScript(`return redis.call('SET', KEYS[1], '', 'PX', 1000)`);

/** KEYS: event, token. ARGV: owner. */
export const RELEASE = new RedisScript(`${HELD}
redis.call('DEL', KEYS[1], KEYS[2])
return 1
`);
