import { parseDuration } from '../clock/duration.js';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import type { WebhookDelivery } from '../queue/webhook-delivery.interface.js';
import { identifierRule, isIdentifier } from '../token/identifier.js';
import type {
  DeliveryCounts,
  DeliveryFilter,
  DeliveryPageRequest,
  DeliveryStatus,
  LoggedAttempt,
  LoggedDelivery,
} from './delivery-log.js';
import type {
  DeliveryStanding,
  WebhookAttemptView,
  WebhookDeliveryFilter,
  WebhookDeliveryStats,
  WebhookDeliveryView,
} from './webhook-deliveries.interface.js';

/** What may be shown of a delivery. */
export function viewOf(logged: LoggedDelivery): WebhookDeliveryView {
  const { delivery, status, attempts, nextAttemptAt, reason, updatedAt } = logged;
  const { id, eventId, event, endpointId, tenant, round = 1, createdAt } = delivery;
  const origin = originOf(delivery);
  return {
    id,
    eventId,
    event,
    ...(endpointId !== undefined && { endpointId }),
    ...(origin !== undefined && { origin }),
    ...(tenant !== undefined && { tenant }),
    status,
    attemptsMade: attempts,
    round,
    createdAt: new Date(createdAt),
    updatedAt: new Date(updatedAt),
    ...(nextAttemptAt !== undefined && { nextAttemptAt: new Date(nextAttemptAt) }),
    ...(reason !== undefined && { failureReason: reason }),
  };
}

/** What may be shown of an attempt. */
export function attemptViewOf(made: LoggedAttempt): WebhookAttemptView {
  const { attempt, at, method, durationMs, statusCode, reason, answer } = made;
  return {
    attempt,
    at: new Date(at),
    method,
    ...(statusCode !== undefined && { statusCode }),
    durationMs,
    ...(reason !== undefined && { failureReason: reason }),
    ...(answer !== undefined && { answer }),
  };
}

/**
 * Sums counts up.
 *
 * @param now - epoch milliseconds
 */
export function statsOf(counts: readonly DeliveryCounts[], now: number): WebhookDeliveryStats {
  const endpoints = counts.map(({ oldestDue, ...count }) => ({
    ...count,
    lag: oldestDue === undefined ? 0 : Math.max(0, now - oldestDue),
  }));
  const all: DeliveryStanding = endpoints.reduce(
    (sum, { pending, delivered, dead, lag }) => ({
      pending: sum.pending + pending,
      delivered: sum.delivered + delivered,
      dead: sum.dead + dead,
      lag: Math.max(sum.lag, lag),
    }),
    { pending: 0, delivered: 0, dead: 0, lag: 0 },
  );
  return { ...all, endpoints };
}

/** Path and query of a URL may be credentials. */
function originOf({ url }: WebhookDelivery): string | undefined {
  return url !== undefined && URL.canParse(url) ? new URL(url).origin : undefined;
}

const STATUSES: readonly unknown[] = ['pending', 'delivered', 'dead'] satisfies DeliveryStatus[];

/** The last time that a Date can be, in epoch milliseconds. */
const MAX_TIME = 8.64e15;

/** What each member of a filter must be. */
const MEMBERS: Readonly<
  Record<keyof WebhookDeliveryFilter, (value: unknown) => string | undefined>
> = {
  tenant: identifierFault('tenant'),
  endpointId: identifierFault('endpointId'),
  eventId: identifierFault('eventId'),
  event: identifierFault('event'),
  status: (value) =>
    STATUSES.includes(value) ? undefined : "status: must be 'pending', 'delivered' or 'dead'",
  since: dateFault('since'),
  until: dateFault('until'),
};

/**
 * Reads a filter. A member that does not exist is refused: a typo must not widen what is found, least of all what is sent again.
 *
 * @throws {@link WebhookDeliveryError} `invalid_option`
 */
export function readFilter(filter: unknown, tenant?: string): DeliveryFilter {
  if (typeof filter !== 'object' || filter === null || Array.isArray(filter)) {
    throw invalid(`The filter must be an object with ${Object.keys(MEMBERS).join(', ')}`);
  }
  for (const name of Object.keys(filter)) {
    if (Object.hasOwn(MEMBERS, name)) continue;
    throw invalid(
      `The filter has no member ${quoted(name)}, but ${Object.keys(MEMBERS).join(', ')}`,
    );
  }
  for (const [name, value] of Object.entries(givenMembers(filter))) {
    const fault = value === undefined ? undefined : MEMBERS[name as keyof typeof MEMBERS](value);
    if (fault !== undefined) throw invalid(fault);
  }
  const { since, until, ...members } = givenMembers(filter);
  if (tenant !== undefined && members.tenant !== undefined && members.tenant !== tenant) {
    throw invalid('tenant: the filter names another one than the scope');
  }
  return {
    ...members,
    ...(tenant !== undefined && { tenant }),
    ...(since !== undefined && { since: since.getTime() }),
    ...(until !== undefined && { until: until.getTime() }),
  };
}

/**
 * Reads which deliveries are to be sent again.
 *
 * @throws {@link WebhookDeliveryError} `invalid_option`, also where nothing is asked for
 */
export function readRedeliveryFilter(given: unknown, tenant?: string): DeliveryFilter {
  const filter = readFilter(given, tenant);
  if (Object.values(givenMembers(given as object)).every((value) => value === undefined)) {
    throw invalid(
      'The filter asks for nothing: name what is to be sent again, or say { since: new Date(0) } for everything',
    );
  }
  if (filter.status === 'pending') {
    throw invalid("status: what is pending is sent anyway; it must be 'dead' or 'delivered'");
  }
  return { ...filter, status: filter.status ?? 'dead' };
}

/**
 * Reads whose deliveries are meant, from options that may have others beside it.
 *
 * @throws {@link WebhookDeliveryError} `invalid_option`: for a tenant that is `undefined`, which would mean everybody's; and for
 *   an option that does not exist, which may be a tenant with a typo
 */
export function readScope(options: unknown, others: readonly string[] = []): string | undefined {
  if (options === undefined) return undefined;
  const known = [...others, 'tenant'];
  if (typeof options !== 'object' || options === null) {
    throw invalid(`The options must be an object with ${known.join(', ')}`);
  }
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown !== undefined) {
    throw invalid(`There is no option ${quoted(unknown)}, but ${known.join(', ')}`);
  }
  // Not its own only: a tenant that is a getter of a class must not be everybody.
  if (!('tenant' in options)) return undefined;
  const { tenant } = options as { readonly tenant: unknown };
  const fault = MEMBERS.tenant(tenant);
  if (fault !== undefined) throw invalid(`${fault}; leave it out for all tenants`);
  return tenant as string;
}

/**
 * Reads before which time, as epoch milliseconds.
 *
 * @throws {@link WebhookDeliveryError} `invalid_option`
 */
export function readOlderThan(olderThan: unknown, now: number): number {
  if (olderThan instanceof Date && !Number.isNaN(olderThan.getTime())) return olderThan.getTime();
  const ms = parseDuration(olderThan);
  if (ms !== undefined) return now - ms;
  throw invalid("olderThan: must be given, as a Date or a duration like '30d'");
}

/** @throws {@link WebhookDeliveryError} `invalid_option` */
export function readDryRun(dryRun: unknown): boolean {
  if (dryRun === undefined || typeof dryRun === 'boolean') return dryRun ?? false;
  throw invalid('dryRun: must be true or false');
}

/** @throws {@link WebhookDeliveryError} `invalid_option` */
export function readLimit(limit: unknown, fallback: number, most: number): number {
  if (limit === undefined) return fallback;
  if (Number.isSafeInteger(limit) && (limit as number) >= 1 && (limit as number) <= most) {
    return limit as number;
  }
  throw invalid(`limit: must be a whole number from 1 to ${most}`);
}

/** Where the rest of a list begins, as a text that means nothing to its reader. */
export function cursorOf({ createdAt, id }: { createdAt: number; id: string }): string {
  return Buffer.from(JSON.stringify([createdAt, id])).toString('base64url');
}

/** @throws {@link WebhookDeliveryError} `invalid_option` */
export function readCursor(after: unknown): DeliveryPageRequest['after'] {
  if (after === undefined) return undefined;
  const [createdAt, id] = cursorParts(after);
  if (isTime(createdAt) && isIdentifier(id)) {
    return { createdAt, id };
  }
  throw invalid('after: must be `next` of the page before, unchanged');
}

/** Also those that it inherits, such as the getters of a class: left out, they would widen what is found. */
function givenMembers(filter: object): WebhookDeliveryFilter {
  const names = Object.keys(MEMBERS).filter((name) => name in filter);
  return Object.fromEntries(
    names.map((name) => [name, (filter as Record<string, unknown>)[name]]),
  ) as WebhookDeliveryFilter;
}

function cursorParts(after: unknown): readonly unknown[] {
  if (typeof after !== 'string') return [];
  try {
    const parts: unknown = JSON.parse(Buffer.from(after, 'base64url').toString());
    return Array.isArray(parts) && parts.length === 2 ? parts : [];
  } catch {
    return [];
  }
}

/** A database may have no words for what lies outside. */
function isTime(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= MAX_TIME;
}

function identifierFault(name: string): (value: unknown) => string | undefined {
  return (value) => (isIdentifier(value) ? undefined : identifierRule(name));
}

function dateFault(name: string): (value: unknown) => string | undefined {
  return (value) =>
    value instanceof Date && !Number.isNaN(value.getTime())
      ? undefined
      : `${name}: must be a Date that is valid`;
}

/** Somebody else's word in a message: short, and in one line. */
function quoted(name: string): string {
  return JSON.stringify(name.slice(0, 40));
}

function invalid(message: string): WebhookDeliveryError {
  return new WebhookDeliveryError('invalid_option', `${message.replace(/\.$/, '')}.`);
}
