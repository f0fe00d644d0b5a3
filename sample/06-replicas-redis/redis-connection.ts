import { Redis } from 'ioredis';

/** @returns the URL of Redis; if it is unreachable, prints a message and exits */
export async function requireRedis(): Promise<string> {
  const url = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379';
  const redis = new Redis(url, { lazyConnect: true, retryStrategy: () => null });
  redis.on('error', () => {});
  try {
    await redis.connect();
    return url;
  } catch {
    const { host } = new URL(url);
    console.error(`This sample needs Redis at ${host}: start redis-server, or set REDIS_URL.`);
    process.exit(1);
  } finally {
    redis.disconnect();
  }
}
