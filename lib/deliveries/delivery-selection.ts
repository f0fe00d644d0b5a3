import type { WebhookDelivery } from '../queue/webhook-delivery.interface.js';
import type {
  DeliveryCounts,
  DeliveryFilter,
  DeliveryPageRequest,
  DeliveryStatus,
} from './delivery-log.js';

/** A delivery, and what a choice among several looks at. */
export interface Standing {
  readonly delivery: WebhookDelivery;
  readonly status: DeliveryStatus;
  readonly nextAttemptAt?: number | undefined;
}

/** Whether a filter asks for a delivery. */
export function matchesFilter({ delivery, status }: Standing, filter: DeliveryFilter): boolean {
  const { since = -Infinity, until = Infinity } = filter;
  return (
    isAskedFor(filter.tenant, delivery.tenant) &&
    isAskedFor(filter.endpointId, delivery.endpointId) &&
    isAskedFor(filter.eventId, delivery.eventId) &&
    isAskedFor(filter.event, delivery.event) &&
    isAskedFor(filter.status, status) &&
    delivery.createdAt >= since &&
    delivery.createdAt < until
  );
}

function isAskedFor(wanted: string | undefined, value: string | undefined): boolean {
  return wanted === undefined || wanted === value;
}

/** The order of lists: by `createdAt`, then by id, the greater first. */
export function newestFirst(
  a: Pick<WebhookDelivery, 'createdAt' | 'id'>,
  b: Pick<WebhookDelivery, 'createdAt' | 'id'>,
): number {
  if (a.createdAt !== b.createdAt) return b.createdAt - a.createdAt;
  if (a.id === b.id) return 0;
  return a.id < b.id ? 1 : -1;
}

/** Whether a delivery comes behind the last one of a page. */
export function isBehind(
  delivery: Pick<WebhookDelivery, 'createdAt' | 'id'>,
  after: DeliveryPageRequest['after'],
): boolean {
  return after === undefined || newestFirst(after, delivery) < 0;
}

/** Counts deliveries by endpoint and tenant. */
export function countDeliveries(deliveries: readonly Standing[]): DeliveryCounts[] {
  const groups = new Map<string, Tally>();
  for (const { delivery, status, nextAttemptAt } of deliveries) {
    const { endpointId, tenant } = delivery;
    const key = JSON.stringify([endpointId ?? null, tenant ?? null]);
    let tally = groups.get(key);
    if (tally === undefined) {
      tally = {
        ...(endpointId !== undefined && { endpointId }),
        ...(tenant !== undefined && { tenant }),
        pending: 0,
        delivered: 0,
        dead: 0,
      };
      groups.set(key, tally);
    }
    tally[status]++;
    if (nextAttemptAt !== undefined) {
      tally.oldestDue = Math.min(tally.oldestDue ?? Infinity, nextAttemptAt);
    }
  }
  return [...groups.values()];
}

type Tally = { -readonly [Name in keyof DeliveryCounts]: DeliveryCounts[Name] };
