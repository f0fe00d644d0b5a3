import { isStorableTime, type Rule } from '../options/rules.js';
import { isIdentifier } from '../token/identifier.js';
import type { RememberedDelivery } from './delivery-memory.js';
import type { DeliveryRecord, WebhookDelivery } from './webhook-delivery.js';
import type {
  DeliveryCountFilter,
  DeliveryCounts,
  DeliveryFilter,
  DeliveryPageRequest,
  EnqueuedDelivery,
  ListedDelivery,
  WebhookQueue,
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

/** All deliveries that match, newest first, which a queue lists in pages. @param size - of a page */
export async function* eachDelivery(
  queue: Pick<WebhookQueue, 'list'>,
  filter: DeliveryFilter,
  size: number,
  start?: DeliveryPageRequest['after'],
): AsyncGenerator<ListedDelivery> {
  for (let after = start; ;) {
    const page = await queue.list(filter, { limit: size, after });
    yield* page;
    if (page.length < size) return;
    after = page.at(-1)!.delivery;
  }
}

/** Deliveries that are listed, and changed, at once. */
const PAGE = 500;

type ChangedQueue = Pick<WebhookQueue, 'list' | 'redeliver' | 'skip'>;

/** Makes the deliveries due that waited because their endpoint was paused, the oldest first. */
export async function attemptPaused(endpointId: string, queue: ChangedQueue): Promise<void> {
  const ids: string[] = [];
  const pending = eachDelivery(queue, { endpointId, status: 'pending' }, PAGE);
  for await (const { delivery, reason } of pending) {
    if (reason === 'endpoint_paused') ids.push(delivery.id);
  }
  ids.reverse();
  for (let start = 0; start < ids.length; start += PAGE) {
    await queue.redeliver(ids.slice(start, start + PAGE));
  }
}

/** Releases the deliveries of an endpoint that wait for dead ones of their keys. */
export async function releaseKeys(endpointId: string, queue: ChangedQueue): Promise<void> {
  const blocking = eachDelivery(queue, { endpointId, keyState: 'blocking' }, PAGE);
  const ids: string[] = [];
  for await (const { delivery } of blocking) ids.push(delivery.id);
  if (ids.length > 0) await queue.skip(ids);
}

/**
 * Counts the deliveries that match, by endpoint and tenant, or by receiver, and by step.
 *
 * @param heldUntil - until when the limits of a lane have held up its deliveries, in epoch milliseconds
 */
export function countDeliveries(
  all: Iterable<RememberedDelivery>,
  { unfinished, step, ...filter }: DeliveryCountFilter,
  heldUntil: (lane: string) => number,
): DeliveryCounts[] {
  const { since = 0 } = filter;
  const groups = new Map<string, Tally>();
  for (const known of all) {
    if (!matches(known, filter) || (unfinished === true && known.status === 'delivered')) continue;
    const { endpointId, tenant, receiver } = filterable(known);
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
      const due = Math.max(known.due, heldUntil(known.lane));
      tally.oldestDue = Math.min(tally.oldestDue ?? Infinity, due);
    }
  }
  return [...groups.values()];
}

/** The record of a delivery that no run has changed. */
export function pendingRecord({ delivery, notBefore }: EnqueuedDelivery): DeliveryRecord {
  const { createdAt: updatedAt } = delivery;
  return { delivery, status: 'pending', attempts: 0, nextAttemptAt: notBefore, updatedAt };
}

/** A record without its payload. */
export function listed({ delivery, ...state }: DeliveryRecord): ListedDelivery {
  const { payload: _, ...facts } = delivery;
  return { ...state, delivery: facts };
}

type Tally = { -readonly [Name in keyof DeliveryCounts]: DeliveryCounts[Name] };

/** What a filter can name of a delivery, apart from times and the order of its key. */
export function filterable({
  delivery,
  status,
}: Pick<ListedDelivery, 'delivery' | 'status'>): DeliveryFilter {
  const { event, eventId } = delivery;
  if (delivery.received !== undefined) {
    return { status, event, eventId, receiver: delivery.received.receiver };
  }
  const { endpointId, tenant, subject } = delivery;
  return { status, event, eventId, endpointId, tenant, subject };
}

export const FILTERED = [
  'status',
  'event',
  'eventId',
  'endpointId',
  'tenant',
  'subject',
  'receiver',
] as const;

export function matches(
  known: Pick<ListedDelivery, 'delivery' | 'status' | 'keyState'>,
  filter: DeliveryFilter,
): boolean {
  const { since = -Infinity, until = Infinity, keyState = known.keyState } = filter;
  const { createdAt } = known.delivery;
  if (createdAt < since || createdAt >= until || keyState !== known.keyState) return false;
  const members = filterable(known);
  return FILTERED.every((name) => filter[name] === undefined || filter[name] === members[name]);
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

/** An opaque string that says where the next page begins. */
export function cursorOf({ createdAt, id }: { createdAt: number; id: string }): string {
  return Buffer.from(JSON.stringify([createdAt, id])).toString('base64url');
}

/** The rule that a cursor breaks, for messages. */
export const CURSOR_RULE = 'must be `next` of the previous page, unchanged';

/** Reads what {@link cursorOf} returned. */
export const cursor: Rule<NonNullable<DeliveryPageRequest['after']>> = (after, at, name) => {
  const [createdAt, id] = cursorParts(after);
  if (isStorableTime(createdAt) && isIdentifier(id)) return { createdAt, id };
  return at.add(name, CURSOR_RULE) as never;
};

function cursorParts(after: unknown): readonly unknown[] {
  if (typeof after !== 'string') return [];
  try {
    const parts: unknown = JSON.parse(Buffer.from(after, 'base64url').toString());
    return Array.isArray(parts) && parts.length === 2 ? parts : [];
  } catch {
    return [];
  }
}
