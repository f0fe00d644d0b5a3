import type { Duration } from '../clock/duration.js';
import { invalidOptions, readArgument } from '../options/read-options.js';
import * as option from '../options/rules.js';
import type { DeliveryCountFilter, DeliveryFilter } from '../queue/webhook-queue.js';
import type { DeliveryKeyState, DeliveryStatus } from '../queue/webhook-delivery.js';
import { cursor } from '../queue/delivery-list.js';
import { identifier } from '../token/identifier.js';

/**
 * Which deliveries. A member that is left out matches everything. An unknown member and one that is `undefined` are refused: a
 * mistake must not widen what is found, least of all what is sent again.
 */
export interface WebhookDeliveryFilter {
  readonly tenant?: string;
  readonly endpointId?: string;
  /** The event's id. */
  readonly eventId?: string;
  /** The event's name, exactly. */
  readonly event?: string;
  readonly status?: DeliveryStatus;
  /** `waiting`: for an earlier one of its ordering key; `blocking`: dead, and later ones of its key wait. */
  readonly keyState?: DeliveryKeyState;
  /** Recorded at this time or later. */
  readonly since?: Date;
  /** Recorded before this time. */
  readonly until?: Date;
}

export type WebhookDeliveryStatsFilter = Pick<
  WebhookDeliveryFilter,
  'tenant' | 'endpointId' | 'since' | 'until'
>;

/** Limits a call to one tenant; the deliveries of others are reported as unknown. */
export interface WebhookDeliveryScope {
  /** Leave it out for all tenants; `undefined` is refused, since it is most often a mistake. */
  readonly tenant?: string;
}

export interface DeliveryPageOptions extends WebhookDeliveryScope {
  /** `next` of the page before. */
  readonly after?: string | undefined;
  /** 1 to 500; default 50. */
  readonly limit?: number | undefined;
}

export interface PruneOptions extends WebhookDeliveryScope {
  /** Recorded before this Date, or longer ago than this duration, such as `'30d'`; at most `'36500d'`. */
  readonly olderThan: Duration | Date;
}

/** Which deliveries to erase: at least one member, and those that match all of them. */
export interface ErasureFilter extends WebhookDeliveryScope {
  readonly endpointId?: string;
  readonly eventId?: string;
  /** The option `subject` that the events were published with. */
  readonly subject?: string;
}

export interface RedeliverOptions extends WebhookDeliveryScope {
  /** Returns what would be sent again, and changes nothing; default `false`. */
  readonly dryRun?: boolean | undefined;
  /** Sends nothing if the delivery of the id is delivered, for a user who has last seen it in another state. Default `false`. */
  readonly unlessDelivered?: boolean | undefined;
  /** With a filter: `next` of the call before, to continue with older deliveries. */
  readonly after?: string | undefined;
  /** Maximum number of deliveries with a filter; 1 to 10,000, default 1,000. */
  readonly limit?: number | undefined;
}

const SCOPE = { tenant: option.notUndefined(identifier()) };

const STATS = {
  ...SCOPE,
  endpointId: option.notUndefined(identifier()),
  since: option.notUndefined(option.time),
  until: option.notUndefined(option.time),
};

const FILTER = {
  ...STATS,
  eventId: option.notUndefined(identifier()),
  event: option.notUndefined(identifier()),
  status: option.notUndefined(option.oneOf('pending', 'delivered', 'dead')),
  keyState: option.notUndefined(option.oneOf('waiting', 'blocking')),
};

const EXACT = { exact: true };

const STATS_FILTER = option.object<WebhookDeliveryStatsFilter>()(STATS, EXACT);
const LIST_FILTER = option.object<WebhookDeliveryFilter>()(FILTER, EXACT);
const REDELIVERY_FILTER = option.object<WebhookDeliveryFilter>()(FILTER, {
  ...EXACT,
  across(read, at) {
    at.requireMembers(
      read,
      'name what to send again, or pass { since: new Date(0) } for everything',
    );
    at.require(
      read.status !== 'pending',
      'status',
      "must be 'dead' or 'delivered'; pending deliveries are sent anyway",
    );
  },
});

export const PAGE = option.object<DeliveryPageOptions>()(
  {
    ...SCOPE,
    after: option.optional(cursor),
    limit: option.optional(option.whole(1, 500), 50),
  },
  EXACT,
);

export const REDELIVERY = option.object<RedeliverOptions>()(
  {
    ...SCOPE,
    dryRun: option.optional(option.flag, false),
    unlessDelivered: option.optional(option.flag, false),
    after: option.optional(cursor),
    limit: option.optional(option.whole(1, 10_000), 1_000),
  },
  EXACT,
);

/** A longer one reaches back to a time that databases cannot represent. */
const AGE = option.duration({ min: 0, max: '36500d' });

/** Milliseconds, or a point in time. */
const AGE_OR_DATE: option.Rule<number | Date> = (value, at, name) =>
  value instanceof Date ? option.date(value, at, name) : AGE(value, at, name);

export const PRUNING = option.object<PruneOptions>()({ ...SCOPE, olderThan: AGE_OR_DATE }, EXACT);

export const ERASURE = option.object<ErasureFilter>()(
  {
    ...SCOPE,
    endpointId: option.notUndefined(identifier()),
    eventId: option.notUndefined(identifier()),
    subject: option.notUndefined(identifier()),
  },
  {
    ...EXACT,
    across(read, at) {
      at.requireMembers(read, 'pass a tenant, a subject, an endpointId or an eventId');
    },
  },
);

const CALL_SCOPE = option.object<WebhookDeliveryScope>()(SCOPE, EXACT);

/**
 * @param tenant - of the call's scope
 * @throws {@link WebhookDeliveryError} `invalid_option`
 */
export function readFilter(filter: unknown, tenant?: string): DeliveryFilter {
  const read = within(tenant, readArgument(LIST_FILTER, filter, 'filter'));
  const { keyState } = read;
  if (keyState === undefined || read.status !== undefined) return read;
  // What every engine finds fast.
  return { ...read, status: keyState === 'waiting' ? 'pending' : 'dead' };
}

/** As {@link readFilter}, for the deliveries to count. */
export function readStatsFilter(filter: unknown, tenant?: string): DeliveryCountFilter {
  return within(tenant, readArgument(STATS_FILTER, filter, 'filter'));
}

/** As {@link readFilter}, for the deliveries to send again; a filter without members is refused. */
export function readRedeliveryFilter(given: unknown, tenant?: string): DeliveryFilter {
  const filter = within(tenant, readArgument(REDELIVERY_FILTER, given, 'filter'));
  return { ...filter, status: filter.status ?? 'dead' };
}

function within<Filter extends DeliveryFilter>(tenant: string | undefined, filter: Filter): Filter {
  if (tenant === undefined) return filter;
  if (filter.tenant === undefined || filter.tenant === tenant) return { ...filter, tenant };
  const message = 'differs from the tenant of the options; pass only one';
  throw invalidOptions([{ path: 'filter.tenant', message }]);
}

/**
 * Reads the tenant that a call is limited to.
 *
 * @throws {@link WebhookDeliveryError} `invalid_option`
 */
export function readScope(scope: unknown): string | undefined {
  return scope === undefined ? undefined : readArgument(CALL_SCOPE, scope, 'scope').tenant;
}
