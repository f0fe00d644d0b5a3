import {
  Inject,
  Injectable,
  Logger,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
} from '@nestjs/common';
import { MINUTE } from '../clock/duration.js';
import { type CancelWake, repeat, WebhookClock } from '../clock/webhook-clock.js';
import type { StoredActivity } from '../endpoints/activity-store.js';
import { errorName } from '../errors/webhook.error.js';
import { ActivityLog } from './activity-log.js';
import { CONSOLE_OPTIONS, type ResolvedConsole, type WebhookAlert } from './console-options.js';
import type { ConsoleAccess } from './console-session.js';
import { ConsoleStatistics } from './console-statistics.js';
import type { EndpointHealth } from './console-health.js';
import { ConsoleEndpoints } from './console.endpoints.js';

const INTERVAL = MINUTE;
const FAILING = 'endpoint.failing';
const LAGGING = 'queue.lagging';
/** The target of `queue.lagging`. */
const QUEUE = 'queue';

const LIBRARY: ConsoleAccess = {
  kind: 'console',
  capabilities: ['view'],
  tenant: undefined,
  actor: undefined,
};

/** What is stored of an episode: from the failure to the recovery. Times in epoch milliseconds. */
interface Episode {
  readonly state: 'failing' | 'disabled' | 'lagging';
  readonly since: number;
  readonly reason?: string | undefined;
  readonly lag?: number;
  /** `false` if the alert could not be sent; the next check sends it. */
  readonly isSent: boolean;
  readonly endedAt?: number;
}

/**
 * Sends an alert when an endpoint fails for some time, is disabled or recovers, and when deliveries are late. The state is that of the
 * stored deliveries, and episodes are entries of the activity log, so that one process sends each alert.
 */
@Injectable()
export class ConsoleAlerts implements OnApplicationBootstrap, OnApplicationShutdown {
  private readonly logger = new Logger('WebhookConsole');
  private stopChecking: CancelWake = () => {};

  constructor(
    @Inject(CONSOLE_OPTIONS) private readonly options: ResolvedConsole,
    private readonly log: ActivityLog,
    private readonly endpoints: ConsoleEndpoints,
    private readonly statistics: ConsoleStatistics,
    private readonly clock: WebhookClock,
  ) {}

  onApplicationBootstrap(): void {
    if (this.options.alerts === undefined) return;
    this.stopChecking = repeat(this.clock, INTERVAL, async () => {
      try {
        await this.check();
      } catch (error) {
        this.logger.error(`Alerts could not be checked (${errorName(error)}).`);
      }
    });
  }

  onApplicationShutdown(): void {
    this.stopChecking();
  }

  private async check(): Promise<void> {
    const now = this.clock.now();
    const { failingFor, lag } = this.options.alerts!;
    const stats = await this.statistics.stats({}, {});
    if (stats === undefined) return;
    const troubled = new Map<string, EndpointHealth>();
    for (const { id, tenant, health } of await this.endpoints.troubled(LIBRARY, {})) {
      troubled.set(id, health);
      const { state, reason } = health;
      const since = health.since?.getTime() ?? NaN;
      const isAlarming = state === 'failing' ? now - since >= failingFor : isDisabled(health);
      if (!isAlarming) continue;
      const episode = { state: state as 'failing' | 'disabled', since, reason, isSent: true };
      await this.begin(FAILING, id, tenant, episode);
    }
    for await (const entry of this.log.all(FAILING)) {
      if (episodeOf(entry).endedAt === undefined) {
        await this.endIfRecovered(entry, troubled.get(entry.target!));
      }
    }
    if (stats.lag >= lag) {
      const episode = { state: 'lagging', since: now - stats.lag, lag: stats.lag } as const;
      await this.begin(LAGGING, QUEUE, undefined, { ...episode, isSent: true });
      return;
    }
    const lagging = await this.log.latest(LAGGING, QUEUE);
    if (lagging !== undefined && episodeOf(lagging).endedAt === undefined) {
      await this.end(lagging, 'queue-recovered');
    }
  }

  /** Begins an episode, or changes the state of the one that lasts. */
  private async begin(
    action: string,
    target: string,
    tenant: string | undefined,
    episode: Episode,
  ): Promise<void> {
    const last = await this.log.latest(action, target);
    const lasting = last && episodeOf(last).endedAt === undefined ? episodeOf(last) : undefined;
    if (lasting?.isSent === true && lasting.state === episode.state) return;
    const scope = tenant === undefined ? {} : { tenant };
    const details = { ...episode };
    const entry =
      lasting === undefined
        ? await this.log.begin(last, { by: 'system', action, target, ...scope, details })
        : await this.log.update(last!, details);
    // Another process sends it.
    if (entry === undefined) return;
    const type =
      episode.state === 'lagging' ? 'queue-lagging' : (`endpoint-${episode.state}` as const);
    if (await this.send(type, entry)) return;
    await this.log.update(entry, { ...details, isSent: false });
  }

  /** Ends the episode of an endpoint that works again, and silently that of one that was deleted, or disabled on request. */
  private async endIfRecovered(
    entry: StoredActivity,
    known: EndpointHealth | undefined,
  ): Promise<void> {
    const health = known ?? (await this.endpoints.find(entry.target!, LIBRARY))?.health;
    if (health?.state === 'healthy') return this.end(entry, 'endpoint-recovered');
    const isGone = health === undefined || health.reason === 'requested';
    if (isGone) await this.end(entry, undefined);
  }

  private async end(entry: StoredActivity, type: WebhookAlert['type'] | undefined): Promise<void> {
    const endedAt = this.clock.now();
    const ended = await this.log.update(entry, { ...entry.details, endedAt });
    if (ended !== undefined && type !== undefined) await this.send(type, ended);
  }

  /** @returns whether it was sent */
  private async send(type: WebhookAlert['type'], entry: StoredActivity): Promise<boolean> {
    const { since, reason, lag } = episodeOf(entry);
    const endpointId = entry.action === FAILING ? entry.target! : undefined;
    const { alerts, portal } = this.options;
    const alert: WebhookAlert = {
      type,
      at: new Date(this.clock.now()),
      since: new Date(since),
      ...(endpointId !== undefined && { endpointId }),
      ...(entry.tenant !== undefined && { tenant: entry.tenant }),
      ...(reason !== undefined && { reason }),
      ...(lag !== undefined && { lagMs: lag }),
      ...(alerts!.url && { consoleUrl: pageOf(alerts!.url, endpointId) }),
      ...(portal && entry.tenant !== undefined && { portalUrl: pageOf(portal.url, endpointId) }),
    };
    try {
      await alerts!.send(alert);
      return true;
    } catch (error) {
      this.logger.error(`The alert ${type} could not be sent (${errorName(error)}).`);
      return false;
    }
  }
}

/** Whether it was disabled because it does not work. */
function isDisabled({ state, reason }: EndpointHealth): boolean {
  return state === 'disabled' && reason !== 'requested';
}

function episodeOf({ details }: StoredActivity): Episode {
  return details as unknown as Episode;
}

/** The page of an endpoint, or the first one. @param base - with a slash at the end */
function pageOf(base: URL, endpointId: string | undefined): string {
  const url = new URL(base);
  if (endpointId !== undefined) url.hash = `/endpoints/${encodeURIComponent(endpointId)}`;
  return url.href;
}
