import { parseDuration } from '../clock/duration.js';
import { invalidOption, readStrictly } from '../options/strict-options.js';
import { identifierRule, isIdentifier } from '../token/identifier.js';
import type { DeliveryFilter, DeliveryPageRequest, DeliveryStatus } from './delivery-log.js';
import type { WebhookDeliveryFilter } from './webhook-deliveries.interface.js';

const STATUSES: readonly unknown[] = ['pending', 'delivered', 'dead'] satisfies DeliveryStatus[];

/** The latest time that a Date can represent, in epoch milliseconds. */
const MAX_TIME = 8.64e15;

const FILTER_CHECKS = {
  tenant: identifierFault,
  endpointId: identifierFault,
  eventId: identifierFault,
  event: identifierFault,
  status: (value: unknown) =>
    STATUSES.includes(value) ? undefined : "must be 'pending', 'delivered' or 'dead'",
  since: dateFault,
  until: dateFault,
};

/**
 * Reads a filter.
 *
 * @param tenant - of the call's scope
 * @throws {@link WebhookDeliveryError} `invalid_option`
 */
export function readFilter(filter: unknown, tenant?: string): DeliveryFilter {
  const members = readStrictly(filter, 'filter', FILTER_CHECKS) as WebhookDeliveryFilter;
  if (tenant !== undefined && members.tenant !== undefined && members.tenant !== tenant) {
    throw invalidOption('filter.tenant: differs from the tenant of the options; pass only one');
  }
  const { since, until, ...others } = members;
  return {
    ...others,
    ...(tenant !== undefined && { tenant }),
    ...(since !== undefined && { since: since.getTime() }),
    ...(until !== undefined && { until: until.getTime() }),
  };
}

/**
 * Reads which deliveries to send again.
 *
 * @throws {@link WebhookDeliveryError} `invalid_option`, also for a filter without members
 */
export function readRedeliveryFilter(given: unknown, tenant?: string): DeliveryFilter {
  const filter = readFilter(given, tenant);
  if (Object.keys(readFilter(given)).length === 0) {
    throw invalidOption(
      'filter: has no members; name what to send again, or pass { since: new Date(0) } for everything',
    );
  }
  if (filter.status === 'pending') {
    throw invalidOption(
      "filter.status: must be 'dead' or 'delivered'; pending deliveries are sent anyway",
    );
  }
  return { ...filter, status: filter.status ?? 'dead' };
}

/**
 * Reads the tenant that a call is limited to.
 *
 * @param others - names of the options beside it
 * @throws {@link WebhookDeliveryError} `invalid_option`
 */
export function readScope(
  options: unknown,
  argument: 'options' | 'scope',
  others: readonly string[] = [],
): string | undefined {
  if (options === undefined) return undefined;
  const optional = Object.fromEntries(others.map((name) => [name, 'optional' as const]));
  const checks = { ...optional, tenant: identifierFault };
  return readStrictly(options, argument, checks).tenant as string | undefined;
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
  throw invalidOption("options.olderThan: pass a Date, or a duration such as '30d'");
}

/** @throws {@link WebhookDeliveryError} `invalid_option` */
export function readDryRun(dryRun: unknown): boolean {
  if (dryRun === undefined || typeof dryRun === 'boolean') return dryRun ?? false;
  throw invalidOption('options.dryRun: must be a boolean');
}

/** @throws {@link WebhookDeliveryError} `invalid_option` */
export function readLimit(limit: unknown, fallback: number, most: number): number {
  if (limit === undefined) return fallback;
  if (Number.isSafeInteger(limit) && (limit as number) >= 1 && (limit as number) <= most) {
    return limit as number;
  }
  throw invalidOption(`options.limit: must be a whole number from 1 to ${most}`);
}

/** An opaque string that says where the next page begins. */
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
  throw invalidOption('options.after: must be `next` of the previous page, unchanged');
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

/** Databases have narrower ranges than numbers. */
function isTime(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= MAX_TIME;
}

function identifierFault(value: unknown): string | undefined {
  return isIdentifier(value) ? undefined : identifierRule('it');
}

function dateFault(value: unknown): string | undefined {
  return value instanceof Date && !Number.isNaN(value.getTime())
    ? undefined
    : 'must be a valid Date';
}
