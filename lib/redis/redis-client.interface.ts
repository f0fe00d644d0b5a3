/** The part of an ioredis client that is used: `new Redis(…)` or `new Cluster(…)`. */
export interface IoRedisClient {
  /** Runs a script the server has, by its digest. */
  evalsha(sha1: string, keyCount: number, ...args: string[]): Promise<unknown>;
  /** Runs a script, and has the server keep it. */
  eval(script: string, keyCount: number, ...args: string[]): Promise<unknown>;
}

/** The part of a node-redis client that is used: `createClient(…)`, connected. */
export interface NodeRedisClient {
  /** Runs a script the server has, by its digest. */
  evalSha(sha1: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>;
  /** Runs a script, and has the server keep it. */
  eval(script: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>;
}

/** Any of the two, or what has the same methods. */
export type RedisClient = IoRedisClient | NodeRedisClient;

/** Tells whether a value can run scripts on a Redis server. */
export function isRedisClient(value: unknown): value is RedisClient {
  if (typeof value !== 'object' || value === null) return false;
  const client = value as Partial<Record<'eval' | 'evalsha' | 'evalSha', unknown>>;
  const runsByDigest = typeof client.evalsha === 'function' || typeof client.evalSha === 'function';
  return typeof client.eval === 'function' && runsByDigest;
}
