import { parseDuration } from '../clock/duration.js';
import { invalidOption, readStrictly } from '../options/strict-options.js';
import { identifierRule, isIdentifier } from '../token/identifier.js';
import type {
  DeliveryCountFilter,
  DeliveryFilter,
  DeliveryStatus,
} from '../queue/delivery-record.js';
import type { WebhookDeliveryFilter } from './webhook-deliveries.interface.js';

const STATUSES: readonly unknown[] = ['pending', 'delivered', 'dead'] satisfies DeliveryStatus[];

const STATS_CHECKS = {
  tenant: identifierProblem,
  endpointId: identifierProblem,
  since: dateProblem,
  until: dateProblem,
};

const FILTER_CHECKS = {
  ...STATS_CHECKS,
  eventId: identifierProblem,
  event: identifierProblem,
  status: (value: unknown) =>
    STATUSES.includes(value) ? undefined : "must be 'pending', 'delivered' or 'dead'",
};

/**
 * Reads a filter.
 *
 * @param tenant - of the call's scope
 * @throws {@link WebhookDeliveryError} `invalid_option`
 */
export function readFilter(filter: unknown, tenant?: string): DeliveryFilter {
  return readWith(FILTER_CHECKS, filter, tenant);
}

/**
 * Reads which deliveries to count.
 *
 * @param tenant - of the call's scope
 * @throws {@link WebhookDeliveryError} `invalid_option`
 */
export function readStatsFilter(filter: unknown, tenant?: string): DeliveryCountFilter {
  return readWith(STATS_CHECKS, filter, tenant);
}

function readWith(
  checks: Readonly<Record<string, (value: unknown) => string | undefined>>,
  filter: unknown,
  tenant: string | undefined,
): DeliveryFilter {
  const members = readStrictly(filter, 'filter', checks) as WebhookDeliveryFilter;
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
  const checks = { ...optional, tenant: identifierProblem };
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

function identifierProblem(value: unknown): string | undefined {
  return isIdentifier(value) ? undefined : identifierRule('it');
}

function dateProblem(value: unknown): string | undefined {
  return value instanceof Date && !Number.isNaN(value.getTime())
    ? undefined
    : 'must be a valid Date';
}
