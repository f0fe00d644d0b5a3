import { type ActivityStore, MemoryActivityStore } from './activity-store.js';
import { identifierRule, isPathSegment } from '../token/identifier.js';
import type { EndpointDisabledReason, EndpointSettings } from '../sending/endpoint.js';
import type { WebhookEndpointFilter } from './endpoint-filter.js';
import type { StoredCredentials } from './stored-credentials.js';

/** Whether a string is a URL rather than an endpoint's id; `send` accepts both, so stored endpoints have no such id. */
export function looksLikeUrl(value: string): boolean {
  return /^[a-z][a-z0-9+.-]*:\/\//i.test(value);
}

export function isEndpointId(value: unknown): value is string {
  return isPathSegment(value) && !looksLikeUrl(value);
}

export const ENDPOINT_ID_RULE = `${identifierRule('id')}, and not a URL, "." or ".."`;

/** Delivery settings of an endpoint that differ from the publisher's. JSON values only. */
export interface StoredEndpointSettings extends Omit<
  EndpointSettings,
  'timeout' | 'retry' | 'rateLimit'
> {
  /** Milliseconds. */
  readonly timeout?: number;
  /** The schedule in milliseconds. */
  readonly retry?: {
    readonly attempts?: number | undefined;
    readonly schedule?: readonly number[] | undefined;
    readonly jitter?: number | undefined;
  };
  readonly rateLimit?: { readonly perSecond: number; readonly burst: number | undefined };
  /** Which events it gets, by their content. */
  readonly filter?: WebhookEndpointFilter;
}

/** An endpoint as it is stored. JSON values only; secrets are encrypted. */
export interface StoredEndpoint {
  /** Unique across all tenants. */
  readonly id: string;
  /** The tenant whose events it receives; absent for events without a tenant. It never changes. */
  readonly tenant?: string;
  readonly url: string;
  /** Event names or patterns. */
  readonly events: readonly string[];
  readonly description?: string;
  /** Notes of the application. */
  readonly metadata?: Readonly<Record<string, string>>;
  readonly settings: StoredEndpointSettings;
  /** Its secrets, oldest first; empty if the publisher's key signs. */
  readonly keys: readonly {
    /** Names the key in tokens. */
    readonly kid: string;
    /** The secret, encrypted with AES-256-GCM and bound to the endpoint and the `kid`; includes the sealing key's id. */
    readonly sealed: string;
    /** Epoch milliseconds from which this key signs; until then the previous one does. */
    readonly notBefore: number;
  }[];
  /** Encrypted; absent if the endpoint requires none. */
  readonly credentials?: StoredCredentials;
  /** Absent while the endpoint is enabled; `at` in epoch milliseconds. */
  readonly disabled?: { readonly at: number; readonly reason: EndpointDisabledReason };
  /** Absent unless the endpoint is paused; epoch milliseconds. */
  readonly pausedAt?: number;
  /** When it was last enabled or resumed, or got another URL, in epoch milliseconds; older circuit state of a process is discarded. */
  readonly enabledAt?: number;
  /** 1 at first; every change adds one. */
  readonly version: number;
  /** Epoch milliseconds. */
  readonly createdAt: number;
  /** Epoch milliseconds. */
  readonly updatedAt: number;
}

/** Since when it is used as it is, in epoch milliseconds: what was learnt earlier applies to another URL, or another endpoint. */
export function enabledAt({ enabledAt: at, createdAt }: StoredEndpoint): number {
  return at ?? createdAt;
}

export type SealedEndpointKey = StoredEndpoint['keys'][number];

/** The keys from the one that signs now; older ones are retired. */
export function withoutRetired(
  keys: readonly SealedEndpointKey[],
  now: number,
): readonly SealedEndpointKey[] {
  const signing = keys.findLastIndex(({ notBefore }) => notBefore <= now);
  return keys.slice(Math.max(0, signing));
}

/**
 * The keys under which an index holds an endpoint: each pattern up to its first wildcard, with the tenant. So an event finds
 * its endpoints by a few keys, however many endpoints there are; only patterns that begin with a wildcard share one key.
 */
export function subscriptionKeys({
  events,
  tenant,
}: Pick<StoredEndpoint, 'events' | 'tenant'>): string[] {
  return withTenant(new Set(events.map(literalPart)), tenant);
}

/** The keys of all endpoints that can subscribe to an event: for `a.b`, those of `a.b`, `a.b.**`, `a.**` and `**`. */
export function keysOfEvent(event: string, tenant: string | undefined): string[] {
  const segments = event.split('.');
  const prefixes = segments.map((_, index) => [...segments.slice(0, index + 1), '**'].join('.'));
  return withTenant([event, ...prefixes, '**'], tenant);
}

function literalPart(pattern: string): string {
  const segments = pattern.split('.');
  const wildcard = segments.findIndex((segment) => segment.startsWith('*'));
  return wildcard < 0 ? pattern : [...segments.slice(0, wildcard), '**'].join('.');
}

/** No event name contains a slash, so the tenant begins after the first one. */
function withTenant(keys: Iterable<string>, tenant: string | undefined): string[] {
  return Array.from(keys, (key) => (tenant === undefined ? key : `${key}/${tenant}`));
}

/** A page of endpoints. */
export interface EndpointPageRequest {
  /** Endpoints of this tenant; `null` for endpoints without a tenant; left out, all of them. */
  readonly tenant?: string | null | undefined;
  /** Endpoints after this id. */
  readonly after?: string | undefined;
  /** Maximum number of endpoints. */
  readonly limit: number;
}

/**
 * Stores managed endpoints: the port behind {@link WebhookEndpoints}.
 *
 * - **Concurrent changes do not overwrite each other.** `insert` accepts an id once. `replace` succeeds only against the
 *   previous version, so of two concurrent changes exactly one succeeds.
 * - **Tenants are isolated.** `subscribed` returns the endpoints of exactly one tenant, or only endpoints without a tenant.
 * - **Reads see earlier writes.** A `find` that starts after a change has resolved sees it, in every process that shares the
 *   store. Mutating a returned object does not change the store.
 *
 * A store that cannot be reached throws {@link WebhookStoreError} `store_unavailable`. Every implementation must pass the
 * contract suite of `nestjs-webhook-token/testing`.
 */
export abstract class EndpointStore {
  /** Whether its endpoints survive this process. */
  abstract readonly durable: boolean;

  /** Whether `subscribed` can read in a transaction of the caller; if not, it is never passed a `tx`. */
  abstract readonly transactional: boolean;

  /** What was done to the endpoints; by default it is kept in this process's memory. */
  readonly activity: ActivityStore = new MemoryActivityStore();

  /**
   * Checks, at start-up and for the health indicator, that the store can be used: by default, it looks for an endpoint that does not
   * exist.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`, which is retried for some seconds; any other error fails start-up
   */
  async check(): Promise<void> {
    await this.find('start-up check');
  }

  /** @returns `false`, with nothing changed, if the id exists */
  abstract insert(endpoint: StoredEndpoint): Promise<boolean>;

  /** Finds an endpoint of any tenant; `undefined` if the id does not exist. */
  abstract find(id: string): Promise<StoredEndpoint | undefined>;

  /**
   * Finds the enabled endpoints of a tenant, or those without a tenant, that subscribe to an event, paused ones included. It may
   * also return enabled endpoints of that tenant that subscribe to other events: they are skipped. Every `publish` calls it, so
   * it should not read all endpoints.
   *
   * @param options - `tx`: the caller's open transaction; reading in it needs no second connection
   */
  abstract subscribed(
    event: string,
    tenant: string | undefined,
    options?: { readonly tx?: unknown },
  ): Promise<readonly StoredEndpoint[]>;

  /** Counts the endpoints of a tenant, disabled ones included. */
  abstract count(tenant: string): Promise<number>;

  /** Lists endpoints by id, in the order of UTF-16 code units. */
  abstract list(request: EndpointPageRequest): Promise<readonly StoredEndpoint[]>;

  /**
   * Replaces the previous version (`endpoint.version - 1`) of the endpoint that was created at `endpoint.createdAt`.
   *
   * @returns `false`, with nothing changed, if another version or endpoint is stored under the id, or none
   */
  abstract replace(endpoint: StoredEndpoint): Promise<boolean>;

  /** @returns whether the endpoint existed */
  abstract remove(id: string): Promise<boolean>;
}
