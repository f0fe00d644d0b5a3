import { Injectable } from '@nestjs/common';
import { CallRate } from '../clock/call-rate.js';
import { WebhookClock } from '../clock/webhook-clock.js';
import { ConsoleError } from './console-problem.js';
import type { ConsoleRoute } from './console-route.js';
import type { ConsoleAccess } from './console-session.js';

/** Reads of one tenant, or of all operators, that run at the same time. */
const MAX_READS = 4;
/** The same of all tenants together. A pool has 10 connections by default, and publishing needs some. */
const MAX_TENANT_READS = 6;
/** Reads that wait for one of these; more are refused. */
const MAX_WAITING = 50;

/** Reads of one tenant: running ones, and those that wait. */
interface ReadQueue {
  running: number;
  readonly waiting: (() => void)[];
}

/** Limits by tenant in the portal, and by actor in the console, so that a partner's calls do not slow down the application. */
@Injectable()
export class ConsoleLimits {
  private readonly rate: CallRate;
  private readonly reads = new Map<string | undefined, ReadQueue>();

  constructor(clock: WebhookClock) {
    this.rate = new CallRate(clock);
  }

  /** @throws {@link ConsoleError} `too_many_requests` if the route was called more often than it allows */
  requireRate(
    { tenant, actor }: ConsoleAccess,
    { path, perMinute }: Pick<ConsoleRoute, 'path' | 'perMinute'>,
  ): void {
    if (perMinute === undefined) return;
    const key = JSON.stringify([path, tenant, tenant === undefined ? actor : undefined]);
    const wait = this.rate.waitAfter(key, perMinute);
    if (wait !== undefined) throw tooMany(`This can be called ${perMinute} times a minute.`, wait);
  }

  /**
   * Runs a read of the stores; further ones of the same tenant wait for it. The tenants take turns.
   *
   * @throws {@link ConsoleError} `too_many_requests` if too many wait
   */
  async read<T>({ tenant }: ConsoleAccess, run: () => T | Promise<T>): Promise<T> {
    const own = this.reads.get(tenant) ?? { running: 0, waiting: [] };
    if (own.waiting.length >= MAX_WAITING) {
      throw tooMany('Too many calls are running at the same time.', 1);
    }
    this.reads.set(tenant, own);
    await new Promise<void>((resolve) => {
      own.waiting.push(resolve);
      this.startWaiting();
    });
    try {
      return await run();
    } finally {
      own.running--;
      if (own.running === 0 && own.waiting.length === 0) this.reads.delete(tenant);
      this.startWaiting();
    }
  }

  private startWaiting(): void {
    const waiting = [...this.reads].filter(([, own]) => own.waiting.length > 0);
    for (const [tenant, own] of waiting) {
      if (!this.hasFreeRead(tenant, own)) continue;
      own.running++;
      // To the end: the tenants before it have their turn first.
      this.reads.delete(tenant);
      this.reads.set(tenant, own);
      own.waiting.shift()!();
    }
  }

  private hasFreeRead(tenant: string | undefined, { running }: ReadQueue): boolean {
    if (running >= MAX_READS) return false;
    if (tenant === undefined) return true;
    let ofTenants = 0;
    for (const [one, read] of this.reads) if (one !== undefined) ofTenants += read.running;
    return ofTenants < MAX_TENANT_READS;
  }
}

function tooMany(why: string, seconds: number): ConsoleError {
  const detail = `${why} Try again in ${seconds} ${seconds === 1 ? 'second' : 'seconds'}.`;
  return new ConsoleError('too_many_requests', detail, seconds);
}
