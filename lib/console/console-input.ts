import { DAY } from '../clock/duration.js';
import type { WebhookDeliveryFilter } from '../deliveries/delivery-query.js';
import { defined } from '../options/defined.js';
import { invalidOptions } from '../options/read-options.js';
import {
  duration,
  eachOrNull,
  flag,
  isOptions,
  isStorableTime,
  list,
  object,
  oneOf,
  optional,
  required,
  type Rule,
  rule,
  text,
  whole,
} from '../options/rules.js';
import { COUNT_GRAIN } from '../queue/webhook-queue.js';
import { isIdentifier } from '../token/identifier.js';
import type {
  DeliveryQuery,
  EndpointPatch,
  EraseRequest,
  LinkRequest,
  NewEndpointRequest,
  RecoveryRequest,
  RedeliverRequest,
  RetryRequest,
  RotateKeyRequest,
  TestEventRequest,
} from './console-api.js';
import type { WebhookEndpointFilter } from '../endpoints/endpoint-filter.js';
import type { EndpointRateLimit } from '../sending/endpoint.js';
import { PORTAL_CAPABILITIES } from './console-options.js';
import { ConsoleError } from './console-problem.js';
import type { ConsoleAccess } from './console-session.js';
import { ceilToGrain, floorToGrain, type StatsRange } from './console-statistics.js';

const STRING = rule<string>((value) => typeof value === 'string', 'must be a string');
/** The library checks its members. */
const OBJECT = rule<object>(isOptions, 'must be a JSON object');
const NUMBER = rule<number>((value) => typeof value === 'number', 'must be a number');
const MAX_PAGE = 100;
const ID_LIST = `must be a list of 1 to ${MAX_PAGE} ids`;
const STATUS_LIST = 'must be a list with the status of each id, in the order of "ids"';
const DEFAULT_PAGE = 50;

export function invalid(path: string, message: string): Error {
  return invalidOptions([{ path, message }]);
}

/**
 * Reads the parameters of a query; each may be passed once.
 *
 * @throws {@link WebhookDeliveryError} `invalid_option`
 */
export function readQuery<Name extends string>(
  query: URLSearchParams,
  names: readonly Name[],
): { readonly [Member in Name]?: string } {
  const members: { [Member in Name]?: string } = {};
  for (const [name, value] of query) {
    if (!(names as readonly string[]).includes(name)) {
      throw invalid(name.slice(0, 40), `unknown parameter; use ${names.join(', ') || 'none'}`);
    }
    if (Object.hasOwn(members, name)) throw invalid(name, 'is passed twice');
    // An empty field of a form means no filter.
    if (value !== '') members[name as Name] = value;
  }
  return members;
}

/** @throws {@link WebhookDeliveryError} `invalid_option` */
export function readPage({
  after,
  limit,
}: {
  readonly after?: string | undefined;
  readonly limit?: string | undefined;
}): {
  readonly after: string | undefined;
  readonly limit: number;
} {
  const size = limit === undefined ? DEFAULT_PAGE : Number(limit);
  if (!Number.isInteger(size) || size < 1 || size > MAX_PAGE) {
    throw invalid('limit', `must be a whole number from 1 to ${MAX_PAGE}`);
  }
  return { after, limit: size };
}

/**
 * Reads the tenant that a call is limited to: the session's, or the one that the console asks for.
 *
 * @throws {@link ConsoleError} `wrong_tenant`
 */
export function readTenant(
  { tenant: own }: ConsoleAccess,
  asked: string | undefined,
): { readonly tenant?: string } {
  if (own !== undefined && asked !== undefined && asked !== own) {
    throw new ConsoleError(
      'wrong_tenant',
      'The session of this browser belongs to another tenant. Reload the page.',
    );
  }
  const tenant = own ?? asked;
  if (tenant === undefined) return {};
  if (!isIdentifier(tenant)) throw invalid('tenant', 'must be a string of 1 to 255 characters');
  return { tenant };
}

/** @throws {@link WebhookDeliveryError} `invalid_option` */
export function readDeliveryFilter({
  endpoint: endpointId,
  since,
  until,
  ...filter
}: Omit<DeliveryQuery, 'tenant' | 'after' | 'limit'>): Omit<WebhookDeliveryFilter, 'tenant'> {
  return defined({ ...filter, endpointId, ...readTimes({ since, until }) });
}

/** @throws {@link WebhookDeliveryError} `invalid_option` */
export function readTimes(times: {
  readonly since: string | undefined;
  readonly until: string | undefined;
}): { since?: Date; until?: Date } {
  const read: { since?: Date; until?: Date } = {};
  for (const name of ['since', 'until'] as const) {
    const time = readTime(name, times[name]);
    if (time !== undefined) read[name] = new Date(time);
  }
  return read;
}

const MAX_STEPS = 200;
const MIN_STEP = 1_000;
const DEFAULT_STEPS = 48;

/**
 * Reads the range of statistics; by default the last 24 hours. With long steps it is widened to whole grains.
 *
 * @throws {@link WebhookDeliveryError} `invalid_option`
 */
export function readRange(
  {
    from: since,
    to: until,
    step: length,
  }: { readonly from?: string; readonly to?: string; readonly step?: string },
  now: number,
): StatsRange {
  const end = readTime('to', until) ?? now;
  const start = readTime('from', since);
  const span = end - (start ?? end - DAY);
  if (span <= 0) throw invalid('from', 'must be before "to"');
  const wanted = length === undefined ? Math.ceil(span / DEFAULT_STEPS) : Number(length);
  // Whole grains, for which queues can count fast.
  const isFine = !(wanted >= COUNT_GRAIN);
  const [to, step] = isFine ? [end, wanted] : [ceilToGrain(end), ceilToGrain(wanted)];
  const from = isFine ? end - span : start === undefined ? to - DAY : floorToGrain(start);
  const steps = Math.ceil((to - from) / step);
  if (!Number.isInteger(step) || step < MIN_STEP || steps > MAX_STEPS) {
    throw invalid(
      'step',
      `must be a number of milliseconds, at least ${MIN_STEP}, so that the range has at most ${MAX_STEPS} steps`,
    );
  }
  return { from, to, step };
}

function readTime(name: string, value: string | undefined): number | undefined {
  if (value === undefined) return undefined;
  const time = new Date(value).getTime();
  if (isStorableTime(time)) return time;
  throw invalid(name, 'must be a time in ISO 8601, such as 2026-01-31T12:00:00Z');
}

/** Of the bodies. Unknown members are refused, since a misspelt one could widen the action. */
const JSON_OBJECT = { form: 'a JSON object' };
const filled = optional(text());
const dryRun = required(flag, 'is required');

/** The library checks the values. */
const DELIVERY_FILTER = {
  status: filled as Rule<DeliveryQuery['status']>,
  keyState: filled as Rule<DeliveryQuery['keyState']>,
  endpoint: filled,
  event: filled,
  eventId: filled,
  tenant: filled,
  since: filled,
  until: filled,
};

/** Parameters of `GET api/deliveries`, without those of pages. */
export const DELIVERY_QUERY = Object.keys(DELIVERY_FILTER) as (keyof typeof DELIVERY_FILTER)[];

/** Body of `POST api/deliveries/redeliver`. */
export const REDELIVER = object<RedeliverRequest>()(
  {
    ids: optional(list(STRING, ID_LIST, { min: 1, max: MAX_PAGE })),
    statuses: optional(list(oneOf('pending', 'delivered', 'dead'), STATUS_LIST)),
    filter: optional(
      object<NonNullable<RedeliverRequest['filter']>>()(DELIVERY_FILTER, { exact: true }),
    ),
    dryRun,
    limit: optional(whole(1, 1_000), 1_000),
  },
  {
    ...JSON_OBJECT,
    across({ ids, statuses, filter }, at) {
      const isEither = (ids === undefined) !== (filter === undefined);
      at.require(isEither || at.has('ids', 'filter'), 'ids', 'pass ids or a filter');
      const isForEach = statuses === undefined || statuses.length === ids?.length;
      at.require(isForEach || at.has('ids', 'statuses'), 'statuses', STATUS_LIST);
    },
  },
);

const EVENTS = optional(list(STRING, 'must be a list of strings'));
/** Of an endpoint; the library checks the values. */
const SETTINGS = {
  description: optional(STRING),
  filter: optional(OBJECT as Rule<WebhookEndpointFilter>),
  onDead: optional(STRING as Rule<'skip' | 'block'>),
  retry: optional(OBJECT),
  concurrency: optional(NUMBER),
  rateLimit: optional(OBJECT as Rule<EndpointRateLimit>),
  credentials: optional(OBJECT),
};

/** Body of `POST api/endpoints`; the library checks the values. */
export const NEW_ENDPOINT = object<NewEndpointRequest>()(
  {
    id: optional(STRING),
    tenant: optional(STRING),
    url: required(STRING, 'is required'),
    events: EVENTS,
    ...SETTINGS,
  },
  JSON_OBJECT,
);

/** Body of `PATCH api/endpoints/:id`. */
export const ENDPOINT_PATCH = object<EndpointPatch>()(
  {
    url: optional(STRING),
    events: EVENTS,
    ...eachOrNull(SETTINGS),
  },
  JSON_OBJECT,
);

/** Body of `POST api/endpoints/:id/recovery`. */
export const RECOVERY = object<RecoveryRequest>()({ since: filled, dryRun }, JSON_OBJECT);

/** Body of `POST api/endpoints/:id/rotate-key`. */
export const ROTATION = object<RotateKeyRequest>()(
  { overlap: optional(duration({ min: 0, max: '3650d' })) },
  JSON_OBJECT,
);

/** Body of `POST api/endpoints/:id/test`. */
export const TEST_EVENT = object<TestEventRequest>()({ event: optional(STRING) }, JSON_OBJECT);

/** Body of `POST api/tenants/:id/link`. */
export const TENANT_LINK = object<LinkRequest>()(
  {
    capabilities: optional(PORTAL_CAPABILITIES),
    expiresIn: optional(duration({ min: '1s', max: '24h' })),
  },
  JSON_OBJECT,
);

/** Body of `POST api/tenants/:id/erase`. */
export const ERASE = object<EraseRequest>()({ dryRun }, JSON_OBJECT);

/** Body of `POST api/dead-letters/retry`. */
export const RETRY = object<RetryRequest>()(
  { ids: required(list(STRING, ID_LIST, { min: 1, max: MAX_PAGE }), ID_LIST) },
  JSON_OBJECT,
);

/** Body of `POST api/session`: the token of a link. */
export const LINK = object<{ readonly token?: string }>()(
  { token: optional(STRING, '') },
  JSON_OBJECT,
);
