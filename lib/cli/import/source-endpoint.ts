import { LEAST_RATE } from '../../queue/lane-limits.js';
import type { EndpointRateLimit } from '../../sending/endpoint.js';
import type { NewEndpoint } from '../../endpoints/webhook-endpoint.interface.js';
import { isObject } from '../../token/json.js';

/** An endpoint of another product, in the terms of this library. */
export interface SourceEndpoint {
  /** For `WebhookEndpoints.create`, which checks them: values are as the source has them. */
  readonly endpoint: { readonly [Name in keyof NewEndpoint]?: unknown };
  /** Older secrets that still sign, and until when, in epoch milliseconds. */
  readonly previous?: readonly { readonly secret: unknown; readonly expiresAt: number }[];
  readonly state: ImportedState;
  /** What is not imported, and what the partner has to change. */
  readonly notes: readonly string[];
  /** Why it cannot be imported, each with a remedy. */
  readonly problems: readonly string[];
}

/** `paused`: deliveries wait until the endpoint is resumed. */
export type ImportedState = 'enabled' | 'disabled' | 'paused';

/** Completes a problem of an endpoint that this library can express in another way. */
export const BY_HAND = 'create this endpoint with WebhookEndpoints.create, and pass --skip-invalid';

/** More than any setting of an endpoint nests. */
const MAX_LEVELS = 64;

/** Cuts off what nests more deeply and would overflow the stack; the checks of an endpoint refuse what remains. */
export function withoutDeepLevels(value: unknown, levels = MAX_LEVELS): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (levels === 0) return null;
  if (Array.isArray(value)) return value.map((one) => withoutDeepLevels(one, levels - 1));
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [name, withoutDeepLevels(member, levels - 1)]),
  );
}

/** The members of a JSON object; none of another value. */
export function membersOf(value: unknown): Readonly<Record<string, unknown>> {
  return isObject(value) ? value : {};
}

/** The elements of a JSON list; none of another value. */
export function elementsOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : [];
}

export function textOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

const BOOLEANS: ReadonlyMap<unknown, boolean> = new Map<unknown, boolean>([
  ...[true, 1, '1', 't', 'true'].map((value) => [value, true] as const),
  ...[false, 0, '0', 'f', 'false'].map((value) => [value, false] as const),
]);

/** A boolean, in any form in which databases export it; `undefined` for another value. */
export function booleanOf(value: unknown): boolean | undefined {
  return BOOLEANS.get(value);
}

/** A time in ISO 8601 as epoch milliseconds. */
export function timeOf(value: unknown): number | undefined {
  const time = typeof value === 'string' ? Date.parse(value) : NaN;
  return Number.isNaN(time) ? undefined : time;
}

/** The value, or `undefined` for `null` and an empty object. */
export function unlessEmpty(value: unknown): unknown {
  const isEmpty = typeof value === 'object' && value !== null && Object.keys(value).length === 0;
  return isEmpty ? undefined : (value ?? undefined);
}

/** The highest rate and burst of an endpoint. */
const MAX_RATE = 10_000;

/** At most `count` attempts in so many seconds; `undefined` for no limit. */
export function rateLimitOf(count: unknown, seconds: number): EndpointRateLimit | undefined {
  const most = typeof count === 'object' && count !== null ? NaN : Number(count ?? 0);
  if (most === 0 || seconds === 0) return undefined;
  return {
    perSecond: Math.min(Math.max(most / seconds, LEAST_RATE), MAX_RATE),
    burst: Math.min(Math.ceil(most), MAX_RATE),
  };
}

/** Custom headers, which are encrypted because their values may be secrets; `undefined` if there are none. */
export function credentialsIn(headers: unknown): { readonly headers: unknown } | undefined {
  return unlessEmpty(headers) === undefined ? undefined : { headers };
}
