import { errorName, isWebhookError } from '../errors/webhook.error.js';
import { type DeliveryLimits, originOf, type OutgoingDelivery } from '../queue/webhook-delivery.js';
import {
  type Endpoint,
  EndpointState,
  type EndpointDisabled,
  limitsOf,
  type ResolvedEndpointSettings,
  SETTING_NAMES,
} from '../sending/endpoint.js';
import { kindsOf } from '../sending/endpoint-credentials.js';
import { dataOf, type EventDraft } from '../sending/event-draft.js';
import { PublisherLog } from '../signing/publisher-log.js';
import { matchesFilter, type WebhookEndpointFilter } from './endpoint-filter.js';
import type { ResolvedEndpoint, ResolvedEndpointOptions } from './endpoint-options.js';
import { type EndpointPageRequest, looksLikeUrl, type StoredEndpoint } from './endpoint-store.js';
import { EndpointTable, subscribesTo } from './memory-endpoint.store.js';
import { inScope, StoredEndpoints } from './stored.endpoints.js';
import type { EndpointScope } from './webhook-endpoint.interface.js';

/** An endpoint that events can be sent to, with the version of the managed endpoint it was made of, if any. */
export interface RegisteredEndpoint extends Endpoint {
  readonly stored?: StoredEndpoint;
  /** Which events `publish` sends to it; absent for all that it subscribes to. */
  readonly filter?: WebhookEndpointFilter | undefined;
}

/** Whether deliveries to it are given up without an attempt. */
export function isDisabled({ stored, state }: RegisteredEndpoint): boolean {
  return stored?.disabled !== undefined || state.disabled !== undefined;
}

/** Its limits. A managed endpoint that is disabled has none, so that what is left is given up at once. */
export function currentLimits(endpoint: RegisteredEndpoint): DeliveryLimits {
  const { stored, state } = endpoint;
  // Other processes may still send to a configured endpoint that is disabled in this one.
  const disabled = stored && (stored.disabled ?? state.disabled);
  return disabled === undefined ? limitsOf(endpoint) : { since: disabled.at };
}

/** Since when its deliveries wait until the application resumes it, in epoch milliseconds; `undefined` if they do not. */
export function pausedSince({ stored, state }: RegisteredEndpoint): number | undefined {
  return stored?.pausedAt ?? state.pausedAt;
}

/** URLs whose state is cached; the least recently used one is evicted. */
const MAX_CACHED_URLS = 1_000;

/**
 * Finds endpoints: those of the publisher's options, those of the store, and URLs that callers of `send` pass. If a configured and a
 * stored endpoint have the same id, the configured one wins.
 */
export class EndpointRegistry {
  readonly stored: StoredEndpoints;

  private readonly configured = new Map<string, RegisteredEndpoint>();
  /** Configured endpoints in the form of stored ones, without keys. */
  private readonly rows = new EndpointTable();
  private readonly urls = new Map<string, RegisteredEndpoint>();
  private readonly log = new PublisherLog();

  constructor(private readonly options: ResolvedEndpointOptions) {
    this.stored = new StoredEndpoints(options);
    const now = options.clock.now();
    for (const configured of options.endpoints) {
      const { id, disabled, events: _events, ...endpoint } = configured;
      this.configured.set(id, {
        ...endpoint,
        endpointId: id,
        label: `endpoint "${id}"`,
        // Only the configuration changes it: this is the state of this process.
        state: new EndpointState(disabled ? { at: now, reason: 'requested' } : undefined),
      });
      this.rows.put(rowOf(configured, options.defaults, now));
    }
  }

  /**
   * Finds the enabled endpoints of the event's tenant that subscribe to it, and whose filter it matches.
   *
   * @param tx - the caller's open transaction; a second connection might not be available while it holds one
   * @throws what the store throws
   */
  async subscribed(draft: EventDraft, tx?: unknown): Promise<readonly RegisteredEndpoint[]> {
    const { event, tenant } = draft;
    const { endpointStore } = this.options;
    const joins = tx !== undefined && endpointStore.transactional;
    const rows = await endpointStore.subscribed(event, tenant, joins ? { tx } : {});
    const stored = rows.filter(
      (row) =>
        // Configured endpoints win. The tenant is checked again in case a store mixes tenants up.
        !this.configured.has(row.id) && row.tenant === tenant && subscribesTo(row, event),
    );
    const enabled = [
      ...this.rows.subscribed(event, tenant).map(({ id }) => this.configured.get(id)!),
      ...stored.map((row) => this.stored.of(row)),
    ].filter((endpoint) => !isDisabled(endpoint));
    if (enabled.every(({ filter }) => filter === undefined)) return enabled;
    const data = dataOf(draft);
    return enabled.filter(
      ({ filter }) => filter === undefined || matchesFilter(filter, event, data),
    );
  }

  /**
   * Finds an endpoint of any tenant.
   *
   * @throws what the store throws
   */
  async find(id: string): Promise<RegisteredEndpoint | undefined> {
    const configured = this.configured.get(id);
    if (configured !== undefined || looksLikeUrl(id)) return configured;
    const row = await this.options.endpointStore.find(id);
    return row && this.stored.of(row);
  }

  /**
   * Finds an endpoint as it is stored.
   *
   * @throws {@link WebhookDeliveryError} `unknown_endpoint`, also for an endpoint outside the scope
   */
  async row(id: string, scope: EndpointScope | undefined): Promise<StoredEndpoint> {
    const configured = this.rows.get(id);
    if (configured === undefined) return this.stored.find(id, scope);
    return inScope(this.asOfNow(configured), scope);
  }

  /** A page of endpoints by id, as they are stored. */
  async page(
    request: EndpointPageRequest,
  ): Promise<{ rows: readonly StoredEndpoint[]; next?: string }> {
    const { limit } = request;
    const page = { ...request, limit: limit + 1 };
    const stored = await this.options.endpointStore.list(page);
    const endpoints = [
      ...this.rows.page(page).map((row) => this.asOfNow(row)),
      ...stored.filter(({ id }) => !this.configured.has(id)),
    ].sort((a, b) => (a.id < b.id ? -1 : 1));
    const shown = endpoints.slice(0, limit);
    // A full page of the store may be hidden by configured endpoints, and is not the last one.
    const hidden = stored.length > limit ? stored.at(-1)!.id : undefined;
    const next = endpoints.length > limit ? shown.at(-1)!.id : hidden;
    return { rows: shown, next };
  }

  private asOfNow(row: StoredEndpoint): StoredEndpoint {
    const { disabled, pausedAt } = this.configured.get(row.id)!.state;
    return { ...row, disabled, pausedAt };
  }

  /** The endpoint of a row, ready to send to. */
  of(row: StoredEndpoint): RegisteredEndpoint {
    return this.configured.get(row.id) ?? this.stored.of(row);
  }

  isConfigured(id: string): boolean {
    return this.configured.has(id);
  }

  /** The newest version of an endpoint that this process knows; `undefined` if it was deleted. */
  latest(endpoint: RegisteredEndpoint): RegisteredEndpoint | undefined {
    return endpoint.stored === undefined ? endpoint : this.stored.latest(endpoint.stored);
  }

  /** The endpoint of a URL, signed for with the publisher's key. The egress guard checks it at every attempt. */
  ofUrl(url: string): RegisteredEndpoint {
    const known = this.urls.get(url);
    this.urls.delete(url);
    const endpoint = known ?? {
      ...this.options.defaults,
      url,
      label: originOf(url) ?? 'invalid URL',
      state: new EndpointState(),
    };
    this.urls.set(url, endpoint);
    if (this.urls.size > MAX_CACHED_URLS) this.urls.delete(this.urls.keys().next().value!);
    return endpoint;
  }

  /**
   * Finds the endpoint of a recorded delivery; `undefined` if it no longer exists, or belongs to another tenant.
   *
   * @throws what the store throws
   */
  async ofDelivery(delivery: OutgoingDelivery): Promise<RegisteredEndpoint | undefined> {
    const { endpointId, url, tenant } = delivery;
    if (endpointId === undefined) return url === undefined ? undefined : this.ofUrl(url);
    const endpoint = await this.find(endpointId);
    return endpoint?.tenant === tenant ? endpoint : undefined;
  }

  /**
   * Stores that an endpoint is disabled, so that every process stops sending to it. This process has stopped already, also if
   * the store fails.
   */
  async keepDisabled(
    { stored, label }: RegisteredEndpoint,
    disabled: EndpointDisabled,
  ): Promise<void> {
    if (stored === undefined) return;
    const isUnchanged = (current: StoredEndpoint): boolean =>
      current.url === stored.url &&
      current.enabledAt === stored.enabledAt &&
      current.createdAt === stored.createdAt;
    try {
      await this.stored.change(stored.id, undefined, {
        // The attempt says nothing about another URL, or about an endpoint that was enabled since.
        make: (current) =>
          current.disabled === undefined && isUnchanged(current)
            ? { ...current, disabled }
            : undefined,
      });
      this.log.recovered('store');
    } catch (error) {
      if (isWebhookError(error, 'unknown_endpoint')) return;
      this.log.once(
        'warn',
        'store',
        () =>
          `Storing that ${label} is disabled failed (${isWebhookError(error) ? error.code : errorName(error)}); only this process has stopped sending to it.`,
      );
    }
  }

  /** The states of all endpoints that this process knows, most of which it has sent to. */
  states(): readonly EndpointState[] {
    const known = [...this.configured.values(), ...this.stored.cached(), ...this.urls.values()];
    return known.map(({ state }) => state);
  }
}

/** A configured endpoint in the form of a stored one. */
function rowOf(
  { id, events, ...endpoint }: ResolvedEndpoint,
  defaults: ResolvedEndpointSettings,
  now: number,
): StoredEndpoint {
  const own = SETTING_NAMES.filter((name) => endpoint[name] !== defaults[name]);
  return {
    id,
    tenant: endpoint.tenant,
    url: endpoint.url,
    events,
    settings: {
      ...Object.fromEntries(own.map((name) => [name, endpoint[name]])),
      ...(endpoint.filter && { filter: endpoint.filter }),
    },
    keys: [],
    ...(endpoint.credentials && {
      credentials: { kinds: kindsOf(endpoint.credentials()), sealed: '' },
    }),
    version: 1,
    createdAt: now,
    updatedAt: now,
  };
}
