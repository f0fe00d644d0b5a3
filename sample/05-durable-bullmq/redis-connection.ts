import { Redis } from 'ioredis';

/** URL of Redis, from `REDIS_URL` in sample.env. */
export const REDIS_URL = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379';

/** Exits with a message if Redis is unreachable, instead of letting the queue reconnect forever. */
export async function requireRedis(): Promise<void> {
  const redis = new Redis(REDIS_URL, { lazyConnect: true, retryStrategy: () => null });
  // connect() below reports the error.
  redis.on('error', () => {});
  try {
    await redis.connect();
  } catch {
    const { host } = new URL(REDIS_URL);
    console.error(`This sample needs Redis at ${host}: start redis-server, or set REDIS_URL.`);
    process.exit(1);
  } finally {
    redis.disconnect();
  }
}
