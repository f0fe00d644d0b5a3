import { Injectable } from '@nestjs/common';
import { WebhookClock } from '../clock/webhook-clock.js';
import { ConsoleError } from './console-problem.js';
import type { ConsoleRoute } from './console-route.js';
import type { ConsoleAccess } from './console-session.js';

const MINUTE = 60_000;
/** Reads of one tenant, or of all operators, that run at the same time. */
const MAX_READS = 4;
/** Reads that wait for one of these; more are refused. */
const MAX_WAITING = 50;
/** Users whose calls are counted before old counts are removed. */
const MAX_COUNTED = 1_000;

/** Calls of one user and route since the start of a minute. */
interface CallCount {
  readonly since: number;
  calls: number;
}

/** Reads of one tenant: running ones, and those that wait. */
interface ReadQueue {
  running: number;
  readonly waiting: (() => void)[];
}

/** Limits by tenant in the portal, and by actor in the console, so that a partner's calls do not slow down the application. */
@Injectable()
export class ConsoleLimits {
  private readonly counts = new Map<string, CallCount>();
  private readonly reads = new Map<string | undefined, ReadQueue>();

  constructor(private readonly clock: WebhookClock) {}

  /** @throws {@link ConsoleError} `too_many_requests` if the route was called more often than it allows */
  requireRate({ tenant, actor }: ConsoleAccess, { path, perMinute }: ConsoleRoute): void {
    if (perMinute === undefined) return;
    const now = this.clock.now();
    const isOver = ({ since }: CallCount): boolean => Math.abs(now - since) >= MINUTE;
    if (this.counts.size >= MAX_COUNTED) {
      for (const [key, count] of this.counts) if (isOver(count)) this.counts.delete(key);
    }
    const key = JSON.stringify([path, tenant, tenant === undefined ? actor : undefined]);
    const found = this.counts.get(key);
    const count = found === undefined || isOver(found) ? { since: now, calls: 0 } : found;
    this.counts.set(key, count);
    if (++count.calls <= perMinute) return;
    throw tooMany(
      `This can be called ${perMinute} times a minute.`,
      Math.ceil((count.since + MINUTE - now) / 1_000),
    );
  }

  /**
   * Runs a read of the stores; further ones of the same tenant wait for it.
   *
   * @throws {@link ConsoleError} `too_many_requests` if too many wait
   */
  async read<T>({ tenant }: ConsoleAccess, run: () => T | Promise<T>): Promise<T> {
    const queue = this.reads.get(tenant) ?? { running: 0, waiting: [] };
    this.reads.set(tenant, queue);
    if (queue.running < MAX_READS) queue.running++;
    else if (queue.waiting.length >= MAX_WAITING) {
      throw tooMany('Too many calls are running at the same time.', 1);
    } else {
      // A read that ends hands its place over.
      await new Promise<void>((resolve) => queue.waiting.push(resolve));
    }
    try {
      return await run();
    } finally {
      const next = queue.waiting.shift();
      if (next !== undefined) next();
      else if (--queue.running === 0) this.reads.delete(tenant);
    }
  }
}

function tooMany(why: string, seconds: number): ConsoleError {
  const detail = `${why} Try again in ${seconds} ${seconds === 1 ? 'second' : 'seconds'}.`;
  return new ConsoleError('too_many_requests', detail, undefined, seconds);
}
