import { Injectable } from '@nestjs/common';
import type {
  DeliveryStanding,
  WebhookDeliveryStats,
  WebhookDeliveryView,
} from '../deliveries/delivery-view.js';
import { WebhookDeliveries } from '../deliveries/webhook.deliveries.js';
import type {
  EndpointCircuitView,
  WebhookEndpointView,
} from '../endpoints/webhook-endpoint.interface.js';
import { optional, scopeOf } from './console-route.js';
import { ConsoleStatistics } from './console-statistics.js';
import { countsOf } from './console-views.js';

export interface EndpointHealth {
  /**
   * From stored deliveries, so that it is the same in every process. `failing`: the last attempt failed, or most of the last
   * 20 deliveries. `idle`: none was attempted.
   */
  readonly state: 'healthy' | 'failing' | 'paused' | 'disabled' | 'idle';
  /** Since when it is failing, paused or disabled. */
  readonly since?: Date;
  /** Why: the last failure, such as `http_503`, or why it is disabled. */
  readonly reason?: string;
  /** Share of the deliveries of the last 24 hours that were delivered, of those that were delivered or given up: 0 to 1. */
  readonly successRate24h?: number;
  /** As the process that answers has learnt it since it started. */
  readonly circuit: EndpointCircuitView;
  /** Absent without a publisher. */
  readonly counts?: DeliveryStanding;
  /** When the newest delivered delivery was delivered; absent if none is stored. */
  readonly lastSuccessAt?: Date;
}

/** Deliveries that are read of each state; of failed ones more, since they say since when. */
const READ = { delivered: 20, pending: 100, dead: 100 } as const;
/** Outcomes that decide the state. */
const RECENT = 20;

/** Reasons that say nothing about the endpoint. */
const NO_VERDICT: ReadonlySet<string> = new Set([
  'endpoint_disabled',
  'endpoint_paused',
  'endpoint_overloaded',
  'aborted',
]);

/** The last known outcome of a delivery; times in epoch milliseconds. */
interface Outcome {
  readonly at: number;
  readonly createdAt: number;
  /** Absent if it was delivered. */
  readonly failure?: string;
}

/** How endpoints are doing, by their stored deliveries: what one process has learnt is lost when it ends. */
@Injectable()
export class ConsoleHealth {
  constructor(
    private readonly deliveries: WebhookDeliveries,
    private readonly statistics: ConsoleStatistics,
  ) {}

  /** @param stats - the counts of all deliveries, by endpoint */
  async of(
    view: WebhookEndpointView,
    circuit: EndpointCircuitView,
    stats: WebhookDeliveryStats | undefined,
    lastDay: WebhookDeliveryStats | undefined,
  ): Promise<EndpointHealth> {
    const outcomes = await this.outcomes(view);
    const { delivered = 0, dead = 0 } = standingOf(view, lastDay) ?? {};
    const lastSuccess = Math.max(...outcomes.map(({ at, failure }) => (failure ? -1 : at)), -1);
    return {
      ...stateOf(view, outcomes),
      successRate24h: delivered + dead === 0 ? undefined : delivered / (delivered + dead),
      circuit,
      counts:
        stats &&
        countsOf(standingOf(view, stats) ?? { pending: 0, delivered: 0, dead: 0, held: 0, lag: 0 }),
      lastSuccessAt: lastSuccess === -1 ? undefined : new Date(lastSuccess),
    };
  }

  private async outcomes({ id: endpointId, tenant }: WebhookEndpointView): Promise<Outcome[]> {
    const scope = scopeOf({ tenant });
    const list = async (status: keyof typeof READ): Promise<readonly WebhookDeliveryView[]> => {
      const options = { ...scope, limit: READ[status] };
      const page = await optional(() => this.deliveries.list({ endpointId, status }, options));
      return page?.deliveries.filter((one) => one.tenant === tenant) ?? [];
    };
    return this.statistics.shared(['health', endpointId, tenant], async () => {
      const found = await Promise.all([list('delivered'), list('pending'), list('dead')]);
      return found
        .flat()
        .flatMap(outcomeOf)
        .toSorted((a, b) => b.at - a.at);
    });
  }
}

function outcomeOf({
  status,
  createdAt,
  updatedAt,
  failureReason,
}: WebhookDeliveryView): Outcome[] {
  const facts = { at: updatedAt.getTime(), createdAt: createdAt.getTime() };
  if (status === 'delivered') return [facts];
  const isVerdict = failureReason !== undefined && !NO_VERDICT.has(failureReason);
  return isVerdict ? [{ ...facts, failure: failureReason }] : [];
}

/** @param outcomes - newest first */
function stateOf(
  { disabled, pausedAt }: WebhookEndpointView,
  outcomes: readonly Outcome[],
): Pick<EndpointHealth, 'state' | 'since' | 'reason'> {
  if (disabled !== undefined) {
    const { at, reason } = disabled;
    return { state: 'disabled', since: at, reason };
  }
  if (pausedAt !== undefined) return { state: 'paused', since: pausedAt };
  const recent = outcomes.slice(0, RECENT);
  const [last] = recent;
  if (last === undefined) return { state: 'idle' };
  const failed = recent.filter(({ failure }) => failure !== undefined);
  if (last.failure === undefined && failed.length * 2 <= recent.length) return { state: 'healthy' };
  const lastSuccess = outcomes.find(({ failure }) => failure === undefined)?.at ?? -Infinity;
  const inRow = outcomes.filter(({ at, failure }) => failure !== undefined && at > lastSuccess);
  const failures = inRow.length > 0 ? inRow : failed;
  const first = Math.min(...failures.map(({ createdAt }) => createdAt));
  const since = inRow.length > 0 ? Math.max(first, lastSuccess) : first;
  // A delivery that waits for others says less than the failure that it waits for.
  const told = failures.find(({ failure }) => failure !== 'circuit_open') ?? failures[0]!;
  return { state: 'failing', since: new Date(since), reason: told.failure! };
}

/** The counts of an endpoint, without those of another tenant whose endpoint had its id before. */
export function standingOf(
  { id, tenant }: Pick<WebhookEndpointView, 'id' | 'tenant'>,
  stats: WebhookDeliveryStats | undefined,
): WebhookDeliveryStats['endpoints'][number] | undefined {
  return stats?.endpoints.find((one) => one.endpointId === id && one.tenant === tenant);
}
