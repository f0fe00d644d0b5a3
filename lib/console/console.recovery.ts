import {
  type BeforeApplicationShutdown,
  Inject,
  Injectable,
  Logger,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { SECOND } from '../clock/duration.js';
import { type CancelWake, repeat, waitUntil, WebhookClock } from '../clock/webhook-clock.js';
import { WebhookDeliveries } from '../deliveries/webhook.deliveries.js';
import type { StoredActivity } from '../endpoints/activity-store.js';
import { WebhookEndpoints } from '../endpoints/webhook.endpoints.js';
import { errorName } from '../errors/webhook.error.js';
import { readArgument } from '../options/read-options.js';
import { ActivityLog } from './activity-log.js';
import { ConsoleActivity } from './console-activity.js';
import type {
  ConsoleCapability,
  RecoveryAnswer,
  RecoveryPreview,
  RecoveryRow,
} from './console-api.js';
import { standingOf } from './console-health.js';
import { readQuery, readTimes, RECOVERY } from './console-input.js';
import { CONSOLE_OPTIONS, type ResolvedConsole } from './console-options.js';
import { ConsoleError } from './console-problem.js';
import { act, type ConsoleCall, type ConsoleRoute, read, scopeOf } from './console-route.js';
import { activityOriginOf } from './console-session.js';
import { recoveryRow } from './console-views.js';

const ACTION = 'endpoint.recover';
/** Deliveries that are sent again between two updates of the progress. */
const PART = 200;
/** A recovery whose process has not reported for so long is continued by another one. */
const LEASE = 30 * SECOND;
/** How often each process looks for recoveries to continue, and the longest pause of its own. */
const CHECK = 10 * SECOND;
/** How long a shutdown waits for a store. */
const SHUTDOWN_TIME = 2 * SECOND;

/** What is stored of a recovery; times in epoch milliseconds. */
export interface StoredRecovery {
  readonly status: 'running' | 'done' | 'cancelled';
  /** Of the deliveries: recorded at this time or later, and before `until`. */
  readonly since?: number;
  readonly until: number;
  /** Missed deliveries when it began. */
  readonly total: number;
  readonly sent: number;
  readonly skipped: number;
  readonly after?: { readonly createdAt: number; readonly id: string };
  readonly leasedUntil: number;
  readonly updatedAt: number;
}

/**
 * Sends the missed deliveries of an endpoint again, as a job in the activity log: every process sees its progress, can cancel it, and
 * continues it when its own process has ended.
 */
@Injectable()
export class ConsoleRecovery implements OnApplicationBootstrap, BeforeApplicationShutdown {
  readonly routes: readonly ConsoleRoute[] = [
    read('endpoints/:id/recovery', (call) => this.current(call)),
    {
      ...act('POST', 'endpoints/:id/recovery', ['redeliver'], (call) => this.start(call)),
      perMinute: 60,
      isRead: true,
    },
    act('DELETE', 'endpoints/:id/recovery', ['redeliver'], (call) => this.cancel(call)),
  ];
  private readonly logger = new Logger('WebhookConsole');
  /** Ids of the recoveries that this process runs. */
  private readonly running = new Map<string, Promise<void>>();
  /** Ends the pauses of running recoveries. */
  private readonly wakes = new Set<() => void>();
  private isStopping = false;
  private stopChecking: CancelWake = () => {};

  constructor(
    @Inject(CONSOLE_OPTIONS) private readonly options: ResolvedConsole,
    private readonly deliveries: WebhookDeliveries,
    private readonly endpoints: WebhookEndpoints,
    private readonly log: ActivityLog,
    private readonly changes: ConsoleActivity,
    private readonly clock: WebhookClock,
  ) {}

  onApplicationBootstrap(): void {
    const { portal } = this.options;
    const capabilities: readonly ConsoleCapability[] = this.options.capabilities;
    // A console that may only read leaves recoveries to others.
    if (!capabilities.includes('redeliver') && portal === undefined) return;
    this.stopChecking = repeat(this.clock, CHECK, async () => this.continueAbandoned());
  }

  /** Leaves running recoveries to other processes, or to the next start. */
  async beforeApplicationShutdown(): Promise<void> {
    this.isStopping = true;
    this.stopChecking();
    for (const wake of this.wakes) wake();
    const left = Promise.all(this.running.values());
    await waitUntil(this.clock, this.clock.now() + SHUTDOWN_TIME, left);
  }

  private async current({ id, query, access }: ConsoleCall): Promise<RecoveryAnswer> {
    readQuery(query, []);
    const { tenant } = await this.endpoints.get(id, scopeOf(access));
    const found = await this.latest(id, tenant);
    return { recovery: found && recoveryRow(found, access.kind === 'console') };
  }

  private async start({
    id,
    body,
    access,
  }: ConsoleCall): Promise<RecoveryPreview | { readonly recovery: RecoveryRow }> {
    const { dryRun, since: from } = readArgument(RECOVERY, body);
    const { tenant, disabled } = await this.endpoints.get(id, scopeOf(access));
    const { since } = readTimes({ since: from, until: undefined });
    const until = this.clock.now();
    const range = { endpointId: id, ...(since && { since }), until: new Date(until) };
    const stats = await this.deliveries.stats(range, scopeOf({ tenant }));
    const total = standingOf({ id, tenant }, stats)?.dead ?? 0;
    if (dryRun) return { dryRun, count: total };
    if (disabled !== undefined) {
      throw new ConsoleError('unsupported_option', 'The endpoint is disabled; enable it first.');
    }
    const last = await this.log.latest(ACTION, id);
    // The newest one may be of another tenant, whose endpoint had the id before.
    if (last !== undefined && last.tenant === tenant && recoveryOf(last).status === 'running')
      throw isRunning();
    const recovery: StoredRecovery = {
      status: 'running',
      ...(since && { since: since.getTime() }),
      until,
      total,
      sent: 0,
      skipped: 0,
      leasedUntil: until + LEASE,
      updatedAt: until,
    };
    const entry = await this.log.begin(last, {
      by: activityOriginOf(access),
      action: ACTION,
      ...(tenant !== undefined && { tenant }),
      target: id,
      details: { actor: access.actor, recovery },
    });
    if (entry === undefined) throw isRunning();
    this.run(entry);
    return { recovery: recoveryRow(entry, true) };
  }

  private async cancel({ id, access }: ConsoleCall): Promise<RecoveryAnswer> {
    const { tenant } = await this.endpoints.get(id, scopeOf(access));
    for (;;) {
      const found = await this.latest(id, tenant);
      if (found === undefined || recoveryOf(found).status !== 'running') {
        throw new ConsoleError('unknown_entry', 'No recovery of this endpoint is running.');
      }
      const details = { ...found.details, canceller: access.actor };
      const changed = await this.store({ ...found, details }, { status: 'cancelled' });
      // Its process may have reported progress in between.
      if (changed === undefined) continue;
      return { recovery: recoveryRow(changed, access.kind === 'console') };
    }
  }

  /** The newest recovery of an endpoint; not that of an endpoint of another tenant that had its id before. */
  private async latest(
    id: string,
    tenant: string | undefined,
  ): Promise<StoredActivity | undefined> {
    const found = await this.log.latest(ACTION, id);
    return found?.tenant === tenant ? found : undefined;
  }

  private async continueAbandoned(): Promise<void> {
    for await (const entry of this.log.all(ACTION)) {
      const { status, leasedUntil } = recoveryOf(entry);
      const isAbandoned = status === 'running' && leasedUntil <= this.clock.now();
      if (!isAbandoned || this.running.has(entry.id) || this.isStopping) continue;
      const leased = await this.store(entry, {});
      if (leased !== undefined) this.run(leased);
    }
  }

  private run(entry: StoredActivity): void {
    const work = this.sendAll(entry)
      // Its lease ends, and it is continued.
      .catch((error: unknown) => {
        this.logger.error(
          `The recovery of ${JSON.stringify(entry.target)} pauses (${errorName(error)}).`,
        );
      })
      .finally(() => this.running.delete(entry.id));
    this.running.set(entry.id, work);
  }

  private async sendAll(entry: StoredActivity): Promise<void> {
    for (let current: StoredActivity | undefined = entry; current !== undefined;) {
      const { since, until, after, sent, skipped } = recoveryOf(current);
      if (this.isStopping) {
        await this.store(current, { leasedUntil: 0 });
        return;
      }
      const range = {
        endpointId: current.target!,
        ...(since !== undefined && { since: new Date(since) }),
        until: new Date(until),
      };
      const { tenant } = current;
      const part = await this.deliveries.recover(range, { tenant, after, limit: PART });
      current = await this.store(current, {
        sent: sent + part.sent,
        skipped: skipped + part.skipped,
        ...(part.next && { after: part.next }),
        ...(part.isLast && { status: 'done' as const }),
      });
      if (part.isLast) return;
      if (part.waitMs > 0) await this.pause(Math.min(part.waitMs, CHECK));
    }
  }

  /** @returns `undefined` if the recovery was cancelled, or is run by another process */
  private async store(
    entry: StoredActivity,
    progress: Partial<StoredRecovery>,
  ): Promise<StoredActivity | undefined> {
    const updatedAt = this.clock.now();
    const leasedUntil = updatedAt + LEASE;
    const recovery = { ...recoveryOf(entry), updatedAt, leasedUntil, ...progress };
    const stored = await this.log.update(entry, { ...entry.details, recovery });
    this.changes.changed('endpoints', entry.target, entry.tenant);
    return stored;
  }

  private async pause(ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const cancel = this.clock.wakeAt(this.clock.now() + ms, end);
      const { wakes } = this;
      wakes.add(end);
      function end(): void {
        cancel();
        wakes.delete(end);
        resolve();
      }
    });
  }
}

function recoveryOf({ details }: StoredActivity): StoredRecovery {
  return details['recovery'] as StoredRecovery;
}

function isRunning(): ConsoleError {
  return new ConsoleError(
    'recovery_running',
    'A recovery of this endpoint is running; wait for it, or cancel it.',
  );
}
