import type { Queue } from 'bullmq';
import { evictionPolicy, timeoutAdvice, type RedisClient } from '../redis/redis-script.js';

/** Milliseconds by which the clocks of this process and of the server may differ without a warning. */
const MAX_SKEW = 2_000;

/** Something about the server, or the way to it, that an operator should change. */
export interface ServerWarning {
  readonly code: string;
  readonly message: string;
}

/** Whether the queue is on a Redis Cluster that would spread its keys over several nodes. */
export function lacksHashTag({ opts, toKey }: Queue): boolean {
  const { isCluster } = opts.connection as { isCluster?: boolean };
  return isCluster === true && !/\{[^}]+\}/.test(toKey(''));
}

/** The members of connection options, or of those of a client, that may set a prefix. */
interface PrefixedOptions {
  readonly keyPrefix?: string;
  readonly url?: unknown;
  readonly redisOptions?: PrefixedOptions;
}

/** The `keyPrefix` of ioredis, which changes keys behind the back of BullMQ's scripts. */
export function keyPrefixOf({ opts }: Queue): string | undefined {
  const connection = opts.connection as PrefixedOptions & { options?: PrefixedOptions };
  const { keyPrefix, redisOptions, url } = connection.options ?? connection;
  const parsed = typeof url === 'string' && URL.canParse(url) ? new URL(url) : undefined;
  const prefix = keyPrefix ?? redisOptions?.keyPrefix ?? parsed?.searchParams.get('keyPrefix');
  return prefix || undefined;
}

export async function warnAboutServer(queue: Queue): Promise<void> {
  // A managed server may not allow INFO.
  const warnings = await serverWarnings(queue).catch(() => []);
  for (const { message, code } of warnings) process.emitWarning(message, { code });
}

export async function serverWarnings(queue: Queue, now = Date.now): Promise<ServerWarning[]> {
  const client = await queue.getBackend().client;
  const asked = now();
  const info = await client.info();
  const skew = skewOf(info, (asked + now()) / 2);
  const policy = evictionPolicy(info);
  const loses = (message: string): ServerWarning => ({
    code: 'WEBHOOK_QUEUE_MAY_LOSE',
    message: `Redis can lose webhook deliveries: ${message}`,
  });
  const warnings: ServerWarning[] = [];
  if (/^aof_enabled:0/m.test(info)) {
    const remedy = 'so a restart loses pending deliveries; set "appendonly yes"';
    warnings.push(loses(`its append-only file is off, ${remedy}`));
  }
  if (policy !== undefined) {
    const remedy = 'so a full server deletes deliveries; set "maxmemory-policy noeviction"';
    warnings.push(loses(`its maxmemory-policy is ${policy}, ${remedy}`));
  }
  if (Math.abs(skew) > MAX_SKEW) {
    const seconds = (Math.abs(skew) / 1_000).toFixed(1);
    const message =
      `The clock of this process is ${seconds} s ${skew > 0 ? 'behind' : 'ahead of'} that of Redis. ` +
      'Deliveries start by it and tokens carry its time; synchronize both clocks (NTP).';
    warnings.push({ code: 'WEBHOOK_CLOCK_SKEW', message });
  }
  const advice = adviceForPassedIn(queue);
  if (advice !== undefined) {
    const message = `The Redis client of the webhook queue ${advice}`;
    warnings.push({ code: 'WEBHOOK_REDIS_NO_TIMEOUT', message });
  }
  return warnings;
}

/** Milliseconds that the server's clock is ahead. Servers before Redis 6.2 do not report their time. */
function skewOf(info: string, now: number): number {
  const [, microseconds] = /^server_time_usec:(\d+)/m.exec(info) ?? [];
  return microseconds === undefined ? 0 : Number(microseconds) / 1_000 - now;
}

/** Advice for a client of the application, of ioredis or node-redis, that waits for answers forever or never reconnects. */
function adviceForPassedIn({ opts: { connection } }: Queue): string | undefined {
  const isClient = typeof (connection as { duplicate?: unknown }).duplicate === 'function';
  return isClient ? timeoutAdvice(connection as RedisClient, '30_000') : undefined;
}
