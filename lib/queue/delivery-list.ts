import type { RememberedDelivery } from './delivery-memory.js';
import type { DeliveryRecord, WebhookDelivery } from './webhook-delivery.js';
import type {
  DeliveryCountFilter,
  DeliveryCounts,
  DeliveryFilter,
  DeliveryPageRequest,
  ListedDelivery,
} from './webhook-queue.js';

/** The page of the deliveries that match, newest first. */
export function listDeliveries(
  all: Iterable<RememberedDelivery>,
  filter: DeliveryFilter,
  { after, limit }: DeliveryPageRequest,
): ListedDelivery[] {
  return [...all]
    .filter((known) => matches(known, filter) && isAfter(known.delivery, after))
    .toSorted((a, b) => newestFirst(a.delivery, b.delivery))
    .slice(0, limit)
    .map((known) => listed(known.record()));
}

/** Counts the deliveries that match, by endpoint and tenant, or by receiver, and by step. */
export function countDeliveries(
  all: Iterable<RememberedDelivery>,
  { unfinished, step, ...filter }: DeliveryCountFilter,
): DeliveryCounts[] {
  const { since = 0 } = filter;
  const groups = new Map<string, Tally>();
  for (const known of all) {
    if (!matches(known, filter) || (unfinished === true && known.status === 'delivered')) continue;
    const { endpointId, tenant, receiver } = factsOf(known.delivery);
    const at =
      step === undefined
        ? undefined
        : since + Math.floor((known.delivery.createdAt - since) / step) * step;
    const key = JSON.stringify([endpointId, tenant, receiver, at]);
    let tally = groups.get(key);
    if (tally === undefined) {
      tally = { endpointId, tenant, receiver, at, pending: 0, delivered: 0, dead: 0 };
      groups.set(key, tally);
    }
    tally[known.status]++;
    if (known.keyState === 'waiting') {
      tally.held = (tally.held ?? 0) + 1;
    } else if (known.status === 'pending') {
      tally.oldestDue = Math.min(tally.oldestDue ?? Infinity, known.due);
    }
  }
  return [...groups.values()];
}

function listed({ delivery, ...state }: DeliveryRecord): ListedDelivery {
  const { payload: _, ...facts } = delivery;
  return { ...state, delivery: facts };
}

type Tally = { -readonly [Name in keyof DeliveryCounts]: DeliveryCounts[Name] };

function factsOf(delivery: WebhookDelivery): {
  readonly endpointId: string | undefined;
  readonly tenant: string | undefined;
  readonly receiver: string | undefined;
} {
  return delivery.received === undefined
    ? { endpointId: delivery.endpointId, tenant: delivery.tenant, receiver: undefined }
    : { endpointId: undefined, tenant: undefined, receiver: delivery.received.receiver };
}

/** Whether a delivery is one of those that a filter selects. */
export function matches(
  { delivery, status, keyState }: Pick<RememberedDelivery, 'delivery' | 'status' | 'keyState'>,
  filter: DeliveryFilter,
): boolean {
  const { since = -Infinity, until = Infinity } = filter;
  const { endpointId, tenant, receiver } = factsOf(delivery);
  return (
    isWanted(filter.tenant, tenant) &&
    isWanted(filter.subject, delivery.received === undefined ? delivery.subject : undefined) &&
    isWanted(filter.endpointId, endpointId) &&
    isWanted(filter.receiver, receiver) &&
    isWanted(filter.eventId, delivery.eventId) &&
    isWanted(filter.event, delivery.event) &&
    isWanted(filter.status, status) &&
    isWanted(filter.keyState, keyState) &&
    delivery.createdAt >= since &&
    delivery.createdAt < until
  );
}

function isWanted(wanted: string | undefined, value: string | undefined): boolean {
  return wanted === undefined || wanted === value;
}

type Place = Pick<WebhookDelivery, 'createdAt' | 'id'>;

/** Orders by `createdAt`, then by id, both descending. */
export function newestFirst(a: Place, b: Place): number {
  if (a.createdAt !== b.createdAt) return b.createdAt - a.createdAt;
  if (a.id === b.id) return 0;
  return a.id < b.id ? 1 : -1;
}

function isAfter(delivery: Place, after: DeliveryPageRequest['after']): boolean {
  return after === undefined || newestFirst(after, delivery) < 0;
}
