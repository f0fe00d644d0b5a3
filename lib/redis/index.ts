/** A replay store for several processes, on Redis. It imports no client: bring ioredis or node-redis. */
export { RedisReplayStore } from './redis-replay.store.js';
export type { RedisClient } from './redis-script.js';
