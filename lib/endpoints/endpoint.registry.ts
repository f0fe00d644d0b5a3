import { errorName, isWebhookError } from '../errors/webhook.error.js';
import { type DeliveryLimits, originOf, type OutgoingDelivery } from '../queue/webhook-delivery.js';
import {
  type Endpoint,
  EndpointState,
  type EndpointDisabled,
  limitsOf,
  SETTING_NAMES,
} from '../sending/endpoint.js';
import { kindsOf } from '../sending/endpoint-credentials.js';
import { dataOf, type EventDraft } from '../sending/event-draft.js';
import { PublisherLog } from '../signing/publisher-log.js';
import { matchesFilter, type WebhookEndpointFilter } from './endpoint-filter.js';
import type { ResolvedEndpointOptions } from './endpoint-options.js';
import { type EndpointPageRequest, looksLikeUrl, type StoredEndpoint } from './endpoint-store.js';
import { EndpointDirectory } from './endpoint.directory.js';
import { EndpointTable, subscribesTo } from './memory-endpoint.store.js';
import { StoredEndpointCache } from './stored-endpoint.cache.js';

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

/** Finds where to send: configured endpoints, stored endpoints, and URLs that callers of `send` pass. */
export class EndpointRegistry {
  /** Configured and stored endpoints as the application sees them. */
  readonly directory: EndpointDirectory;

  private readonly configured: ConfiguredEndpoints;
  private readonly stored: StoredEndpointCache;
  private readonly urls = new Map<string, RegisteredEndpoint>();
  private readonly log = new PublisherLog();

  constructor(private readonly options: ResolvedEndpointOptions) {
    this.configured = new ConfiguredEndpoints(options);
    this.stored = new StoredEndpointCache(options);
    this.directory = new EndpointDirectory(this.configured, options);
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
      ...this.configured.subscribed(event, tenant),
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

  /** The endpoint of a row of the {@link directory}. */
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

  /** Forgets an endpoint that was deleted. */
  forget(id: string): void {
    this.stored.forget(id);
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
    const isUnchanged = (now: StoredEndpoint): boolean =>
      now.url === stored.url &&
      now.enabledAt === stored.enabledAt &&
      now.createdAt === stored.createdAt;
    try {
      await this.directory.change(stored.id, undefined, {
        // The attempt says nothing about another URL, or about an endpoint that was enabled since.
        make: (now) =>
          now.disabled === undefined && isUnchanged(now) ? { ...now, disabled } : undefined,
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
    const known = [...this.configured.all(), ...this.stored.cached(), ...this.urls.values()];
    return known.map(({ state }) => state);
  }
}

/**
 * The endpoints of the publisher's options. Only the configuration changes them; `disabled` and `pausedAt` are the state of
 * this process.
 */
export class ConfiguredEndpoints {
  private readonly endpoints = new Map<string, RegisteredEndpoint>();
  /** The same endpoints in the form of stored ones, without keys. */
  private readonly rows = new EndpointTable();

  constructor({ endpoints, defaults, clock }: ResolvedEndpointOptions) {
    const now = clock.now();
    for (const { id, disabled, events, ...endpoint } of endpoints) {
      this.endpoints.set(id, {
        ...endpoint,
        endpointId: id,
        label: `endpoint "${id}"`,
        state: new EndpointState(disabled ? { at: now, reason: 'requested' } : undefined),
      });
      const own = SETTING_NAMES.filter((name) => endpoint[name] !== defaults[name]);
      this.rows.put({
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
      });
    }
  }

  has(id: string): boolean {
    return this.endpoints.has(id);
  }

  get(id: string): RegisteredEndpoint | undefined {
    return this.endpoints.get(id);
  }

  all(): readonly RegisteredEndpoint[] {
    return [...this.endpoints.values()];
  }

  subscribed(event: string, tenant: string | undefined): RegisteredEndpoint[] {
    return this.rows.subscribed(event, tenant).map(({ id }) => this.endpoints.get(id)!);
  }

  find(id: string): StoredEndpoint | undefined {
    const row = this.rows.get(id);
    return row && this.asOfNow(row);
  }

  list(request: EndpointPageRequest): StoredEndpoint[] {
    return this.rows.page(request).map((row) => this.asOfNow(row));
  }

  private asOfNow(row: StoredEndpoint): StoredEndpoint {
    const { disabled, pausedAt } = this.endpoints.get(row.id)!.state;
    return { ...row, disabled, pausedAt };
  }
}
