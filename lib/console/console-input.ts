import { isIdentifier } from '../token/identifier.js';
import type { DeliveryQuery } from './console-api.js';
import { ConsoleError } from './console-problem.js';
import type { ConsoleAccess } from './console-session.js';

/** The JSON of a filter of deliveries, for `WebhookDeliveries`. */
interface DeliveryFilterInput {
  status?: 'pending' | 'delivered' | 'dead';
  endpointId?: string;
  event?: string;
  eventId?: string;
  tenant?: string;
  since?: Date;
  until?: Date;
}

const MAX_PAGE = 100;
const DEFAULT_PAGE = 50;

export function invalid(path: string, message: string): ConsoleError {
  return new ConsoleError('invalid_option', `${path}: ${message}.`, [{ path, message }]);
}

/**
 * Reads the parameters of a query; each may be passed once.
 *
 * @throws {@link ConsoleError} `invalid_option`
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

/** @throws {@link ConsoleError} `invalid_option` */
export function readPage({ after, limit }: { readonly after?: string; readonly limit?: string }): {
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

/** @throws {@link ConsoleError} `invalid_option` */
export function readDeliveryFilter({
  status,
  endpoint,
  event,
  eventId,
  since,
  until,
}: Omit<DeliveryQuery, 'tenant'>): Omit<DeliveryFilterInput, 'tenant'> {
  return {
    ...(status !== undefined && { status }),
    ...(endpoint !== undefined && { endpointId: endpoint }),
    ...(event !== undefined && { event }),
    ...(eventId !== undefined && { eventId }),
    ...readTimes({ since, until }),
  };
}

/** @throws {@link ConsoleError} `invalid_option` */
export function readTimes(times: {
  readonly since: string | undefined;
  readonly until: string | undefined;
}): { since?: Date; until?: Date } {
  const read: { since?: Date; until?: Date } = {};
  for (const name of ['since', 'until'] as const) {
    const value = times[name];
    if (value === undefined) continue;
    const date = new Date(value);
    if (typeof value !== 'string' || Number.isNaN(date.getTime())) {
      throw invalid(name, 'must be a time in ISO 8601, such as 2026-01-31T12:00:00Z');
    }
    read[name] = date;
  }
  return read;
}

/** What a member of a body may be. */
type BodyRule = (value: unknown) => string | undefined;

export const bodyRules = {
  text: (value: unknown) => (typeof value === 'string' ? undefined : 'must be a string'),
  textOrNull: (value: unknown) =>
    value === null || typeof value === 'string' ? undefined : 'must be a string or null',
  texts: (value: unknown) =>
    Array.isArray(value) && value.every((one) => typeof one === 'string')
      ? undefined
      : 'must be a list of strings',
  ids: (value: unknown) =>
    Array.isArray(value) &&
    value.length >= 1 &&
    value.length <= MAX_PAGE &&
    value.every((one) => typeof one === 'string')
      ? undefined
      : `must be a list of 1 to ${MAX_PAGE} ids`,
  boolean: (value: unknown) => (typeof value === 'boolean' ? undefined : 'must be a boolean'),
  limit: (value: unknown) =>
    Number.isInteger(value) && (value as number) >= 1 && (value as number) <= 1_000
      ? undefined
      : 'must be a whole number from 1 to 1000',
  duration: (value: unknown) =>
    typeof value === 'string' || typeof value === 'number' ? undefined : 'must be a duration',
  filter: (value: unknown) =>
    isObject(value) &&
    Object.entries(value).every(
      ([name, one]) => FILTER_NAMES.has(name) && typeof one === 'string' && one !== '',
    )
      ? undefined
      : `must be an object with ${[...FILTER_NAMES].join(', ')}, all strings`,
} satisfies Record<string, BodyRule>;

const FILTER_NAMES: ReadonlySet<string> = new Set([
  'status',
  'endpoint',
  'event',
  'eventId',
  'tenant',
  'since',
  'until',
]);

/**
 * Reads the JSON body of an action. Unknown members are refused, since a misspelt one could widen the action.
 *
 * @throws {@link ConsoleError} `invalid_option` with every fault
 */
export function readBody<Body extends object>(
  body: unknown,
  rules: { readonly [Name in keyof Body]-?: BodyRule },
): Partial<Body> {
  const given = body ?? {};
  if (!isObject(given)) throw invalid('body', 'must be a JSON object');
  const errors = Object.entries(given).flatMap(([path, value]) => {
    const rule = Object.hasOwn(rules, path) ? rules[path as keyof Body] : undefined;
    if (rule === undefined) return [{ path: path.slice(0, 40), message: 'unknown member' }];
    const message = rule(value);
    return message === undefined ? [] : [{ path, message }];
  });
  if (errors.length === 0) return given as Partial<Body>;
  const [first] = errors;
  throw new ConsoleError('invalid_option', `${first!.path}: ${first!.message}.`, errors);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
