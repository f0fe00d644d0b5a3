import { randomUUID } from 'node:crypto';
import { channel } from 'node:diagnostics_channel';
import {
  Inject,
  Injectable,
  Logger,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
} from '@nestjs/common';
import { HOUR } from '../clock/duration.js';
import { type CancelWake, repeat, WebhookClock } from '../clock/webhook-clock.js';
import {
  type ActivityFilter,
  type ActivityPageRequest,
  type ActivityStore,
  MemoryActivityStore,
  type StoredActivity,
} from '../endpoints/activity-store.js';
import { WebhookEndpoints } from '../endpoints/webhook.endpoints.js';
import { errorName } from '../errors/webhook.error.js';
import type { ActivityRow } from './console-api.js';
import { ConsoleActivity } from './console-activity.js';
import { CONSOLE_OPTIONS, type ResolvedConsole } from './console-options.js';
import { optional } from './console-route.js';
import { type ActivityDetails, activityRow } from './console-views.js';

/** Name of the diagnostics channel with an {@link ActivityRow} for each action. */
const ACTION_CHANNEL = 'nestjs-webhook-token:console-action';
const actions = channel(ACTION_CHANNEL);

/** Entries that are read at once. */
const PAGE = 100;

/** An action that has ended; the log adds its id and time. */
export type NewAction = Pick<StoredActivity, 'by' | 'action' | 'tenant' | 'target'> &
  Omit<ActivityDetails, 'reason'> &
  Required<Pick<ActivityDetails, 'outcome'>>;

/** What users and the library did: in the log of the application, on a diagnostics channel, and in the endpoint store. */
@Injectable()
export class ActivityLog implements OnApplicationBootstrap, OnApplicationShutdown {
  private readonly logger = new Logger('WebhookConsole');
  /** Of an application that only receives, and has no endpoint store. */
  private readonly ownStore = new MemoryActivityStore();
  private isFailing = false;
  private recorded = 0;
  private stopPruning: CancelWake = () => {};

  constructor(
    @Inject(CONSOLE_OPTIONS) private readonly options: ResolvedConsole,
    private readonly endpoints: WebhookEndpoints,
    private readonly changes: ConsoleActivity,
    private readonly clock: WebhookClock,
  ) {}

  onApplicationBootstrap(): void {
    this.stopPruning = repeat(this.clock, HOUR, async () => {
      const store = await this.store();
      await store.prune(this.clock.now() - this.options.activity.keepFor);
    });
  }

  onApplicationShutdown(): void {
    this.stopPruning();
  }

  /** Records an action that has ended. An action does not fail because it cannot be stored: then only the log has it. */
  async acted({ actor, count, outcome, code, ...facts }: NewAction): Promise<void> {
    const details = { actor, count, outcome, code };
    const entry = { ...this.newPlace(), ...facts, details, version: 1 };
    this.report(entry);
    try {
      const store = await this.store();
      await store.record(entry);
      this.isFailing = false;
    } catch (error) {
      if (!this.isFailing) {
        this.logger.error(`Activity could not be stored (${errorName(error)}).`);
      }
      this.isFailing = true;
    }
    this.changes.changed('activity', undefined, facts.tenant);
  }

  async list(
    filter: ActivityFilter,
    page: ActivityPageRequest,
  ): Promise<readonly StoredActivity[]> {
    return (await this.store()).list(filter, page);
  }

  /** All entries of an action, newest first. */
  async *all(action: string): AsyncGenerator<StoredActivity> {
    for (let after: StoredActivity | undefined; ;) {
      const page = await this.list({ action }, { after, limit: PAGE });
      yield* page;
      if (page.length < PAGE) return;
      after = page.at(-1);
    }
  }

  /** The newest entry of something that lasts, such as the recovery of an endpoint. */
  async latest(action: string, target: string): Promise<StoredActivity | undefined> {
    const [found] = await this.list({ action, target }, { limit: 1 });
    return found;
  }

  /**
   * Begins something that lasts, and of which there is one at a time.
   *
   * @param last - the {@link latest} one, which has ended
   * @returns `undefined` if another process was first
   */
  async begin(
    last: StoredActivity | undefined,
    entry: Omit<StoredActivity, 'id' | 'at' | 'version'> & { readonly target: string },
  ): Promise<StoredActivity | undefined> {
    // The id names the next one after the last, so that only one of several processes records it.
    const { action, target } = entry;
    const begun = {
      ...entry,
      id: JSON.stringify([action, target, last?.at ?? 0]),
      at: Math.max(this.clock.now(), (last?.at ?? 0) + 1),
      version: 1,
    };
    if (!(await (await this.store()).record(begun))) return undefined;
    this.report(begun);
    this.changes.changed('activity', undefined, entry.tenant);
    return begun;
  }

  /** @returns `undefined` if another process has changed it */
  async update(
    entry: StoredActivity,
    details: StoredActivity['details'],
  ): Promise<StoredActivity | undefined> {
    const next = { ...entry, details, version: entry.version + 1 };
    if (!(await (await this.store()).replace(next))) return undefined;
    this.changes.changed('activity', undefined, entry.tenant);
    return next;
  }

  private report(entry: StoredActivity): void {
    const row = activityRow(entry, true);
    this.logger.log(lineOf(row));
    if (actions.hasSubscribers) actions.publish(row);
  }

  /** Ids of one process are in the order of its actions, also of those in one millisecond. */
  private newPlace(): Pick<StoredActivity, 'id' | 'at'> {
    const at = this.clock.now();
    const number = String(this.recorded++).padStart(9, '0');
    return { id: `${at}.${number}.${randomUUID()}`, at };
  }

  private async store(): Promise<ActivityStore> {
    return (await optional(async () => this.endpoints.activity())) ?? this.ownStore;
  }
}

function lineOf({ action, by, actor, target, tenant, count, outcome, code }: ActivityRow): string {
  const facts = [
    ...(target === undefined ? [] : [JSON.stringify(target)]),
    ...(count === undefined ? [] : [`${count} affected`]),
    ...(tenant === undefined ? [] : [`tenant ${JSON.stringify(tenant)}`]),
    ...(outcome === 'failed' ? [`failed: ${code}`] : []),
  ].join(', ');
  const who = by === 'system' ? 'the library' : JSON.stringify(actor ?? 'unnamed user');
  return `${action} by ${who}${facts === '' ? '' : ` (${facts})`}`;
}
