import { errorType, isWebhookError } from '../errors/webhook.error.js';
import { matchesEvent } from '../token/event-name.js';
import { after, type MaybePromise } from '../token/maybe-promise.js';
import type { OutgoingDelivery } from '../queue/webhook-delivery.interface.js';
import { EndpointState, type EndpointDisabled } from '../sending/endpoint.js';
import { storedOfConfigured, OptionsEndpointStore } from './options-endpoint.store.js';
import { looksLikeUrl, type StoredEndpoint } from './endpoint-store.js';
import { EndpointEditor } from './endpoint.editor.js';
import { MemoryEndpointStore } from './memory-endpoint.store.js';
import { StoredTargets, type EndpointTarget, isDisabled } from './stored-targets.js';
import { PublisherLog } from '../signing/publisher-log.js';
import type { ResolvedEndpoint, ResolvedEndpointOptions } from './endpoint-options.js';

/** URLs whose state is cached; the least recently used one is evicted. */
const MAX_CACHED_URLS = 1_000;

interface Subscription {
  readonly endpoint: ResolvedEndpoint;
  readonly target: EndpointTarget;
}

/**
 * Finds destinations: configured endpoints, stored endpoints, and URLs that callers of `send` pass. Lookups that need no store
 * are synchronous.
 */
export class EndpointRegistry {
  /** The configured endpoints, readable like a store. */
  readonly configured: OptionsEndpointStore;

  private readonly subscriptions: ReadonlyMap<string, Subscription>;
  private readonly stored: StoredTargets;
  private readonly editor: EndpointEditor;
  private readonly log = new PublisherLog();
  private storeOutageLogged = false;
  private readonly urls = new Map<string, EndpointTarget>();

  constructor(private readonly options: ResolvedEndpointOptions) {
    const { endpoints, defaults } = options;
    const now = options.clock.now();
    this.subscriptions = new Map(
      endpoints.map((endpoint) => [endpoint.id, { endpoint, target: targetOf(endpoint, now) }]),
    );
    this.configured = new OptionsEndpointStore(
      endpoints.map((endpoint) => storedOfConfigured(endpoint, defaults, now)),
      (id) => {
        const { disabled, pausedAt } = this.configuredState(id)!;
        return {
          ...(disabled !== undefined && { disabled }),
          ...(pausedAt !== undefined && { pausedAt }),
        };
      },
    );
    this.stored = new StoredTargets(options);
    this.editor = new EndpointEditor(options.endpointStore, options.sealer, options.clock);
  }

  /**
   * Finds the enabled endpoints of a tenant that subscribe to an event.
   *
   * @param tx - the caller's open transaction; a second connection might not be available while it holds one
   * @throws what the store throws
   */
  subscribed(
    event: string,
    tenant: string | undefined,
    tx?: unknown,
  ): MaybePromise<readonly EndpointTarget[]> {
    const configured = [...this.subscriptions.values()]
      .filter(({ endpoint }) => endpoint.tenant === tenant && subscribesTo(endpoint, event))
      .map(({ target }) => target)
      .filter((target) => !isDisabled(target));
    if (this.storeIsEmpty) return configured;
    return this.subscribedInStore(event, tenant, tx).then((stored) => [...configured, ...stored]);
  }

  /**
   * Finds an endpoint of any tenant.
   *
   * @throws what the store throws
   */
  endpoint(id: string): MaybePromise<EndpointTarget | undefined> {
    const target = this.subscriptions.get(id)?.target;
    if (target !== undefined || this.storeIsEmpty || looksLikeUrl(id)) return target;
    return this.endpointInStore(id);
  }

  /** The destination of a URL, signed for with the publisher's key. The egress guard checks it at every attempt. */
  url(url: string): EndpointTarget {
    const known = this.urls.get(url);
    this.urls.delete(url);
    const target = known ?? {
      ...this.options.defaults,
      url,
      label: URL.canParse(url) ? new URL(url).origin : 'invalid URL',
      state: new EndpointState(),
    };
    this.urls.set(url, target);
    if (this.urls.size > MAX_CACHED_URLS) this.urls.delete(this.urls.keys().next().value!);
    return target;
  }

  /**
   * Finds the destination of a recorded delivery; `undefined` if its endpoint no longer exists, or belongs to another tenant.
   *
   * @throws what the store throws
   */
  targetOf({
    endpointId,
    url,
    tenant,
  }: OutgoingDelivery): MaybePromise<EndpointTarget | undefined> {
    if (endpointId === undefined) return url === undefined ? undefined : this.url(url);
    return after(this.endpoint(endpointId), (target) => ofTenant(target, tenant));
  }

  /** The destination of a stored endpoint. */
  targetOfStored(stored: StoredEndpoint): EndpointTarget {
    return this.stored.of(stored);
  }

  /**
   * Stores that an endpoint is disabled, so that every process stops sending to it. This process has stopped already, also if
   * the store fails.
   */
  async keepDisabled(target: EndpointTarget, disabled: EndpointDisabled): Promise<void> {
    const { stored } = target;
    if (stored === undefined) return;
    const isUnchanged = (now: StoredEndpoint): boolean =>
      now.url === stored.url &&
      now.enabledAt === stored.enabledAt &&
      now.createdAt === stored.createdAt;
    try {
      await this.editor.change(stored.id, undefined, {
        // The attempt says nothing about another URL, or about an endpoint that was enabled since.
        make: (now) =>
          now.disabled === undefined && isUnchanged(now) ? { ...now, disabled } : undefined,
      });
      this.storeOutageLogged = false;
    } catch (error) {
      if (isWebhookError(error, 'unknown_endpoint')) return;
      if (this.storeOutageLogged) return;
      this.storeOutageLogged = true;
      this.log.warn(
        () =>
          `Storing that ${target.label} is disabled failed (${errorType(error)}); only this process has stopped sending to it.`,
      );
    }
  }

  /** The states of all destinations that this process knows, most of which it has sent to. */
  states(): readonly EndpointState[] {
    const targets = [
      ...[...this.subscriptions.values()].map(({ target }) => target),
      ...this.stored.cached(),
      ...this.urls.values(),
    ];
    return targets.map(({ state }) => state);
  }

  /** The state of a configured endpoint in this process. */
  configuredState(id: string): EndpointState | undefined {
    return this.subscriptions.get(id)?.target.state;
  }

  /** Lookups stay synchronous in an application without managed endpoints. */
  private get storeIsEmpty(): boolean {
    const { endpointStore } = this.options;
    return endpointStore instanceof MemoryEndpointStore && endpointStore.size === 0;
  }

  private async subscribedInStore(
    event: string,
    tenant: string | undefined,
    tx: unknown,
  ): Promise<EndpointTarget[]> {
    const { endpointStore } = this.options;
    const joins = tx !== undefined && endpointStore.transactional;
    const endpoints = await endpointStore.subscribed(tenant, joins ? { tx } : {});
    return endpoints
      .filter(
        (endpoint) =>
          // Configured endpoints win, and the tenant is checked again in case a store mixes tenants up.
          !this.subscriptions.has(endpoint.id) &&
          endpoint.tenant === tenant &&
          subscribesTo(endpoint, event),
      )
      .map((endpoint) => this.stored.of(endpoint))
      .filter((target) => !isDisabled(target));
  }

  private async endpointInStore(id: string): Promise<EndpointTarget | undefined> {
    const stored = await this.options.endpointStore.find(id);
    return stored && this.stored.of(stored);
  }
}

function subscribesTo({ events }: Pick<StoredEndpoint, 'events'>, event: string): boolean {
  return events.some((pattern) => matchesEvent(pattern, event));
}

function ofTenant(
  target: EndpointTarget | undefined,
  tenant: string | undefined,
): EndpointTarget | undefined {
  return target?.tenant === tenant ? target : undefined;
}

function targetOf(endpoint: ResolvedEndpoint, now: number): EndpointTarget {
  const { signer, hash, profile, method, timeout, headers, jti, audience, subject, url, tenant } =
    endpoint;
  return {
    signer,
    profile,
    method,
    timeout,
    headers,
    jti,
    url,
    endpointId: endpoint.id,
    label: `endpoint "${endpoint.id}"`,
    state: new EndpointState(endpoint.disabled ? { at: now, reason: 'requested' } : undefined),
    ...(hash !== undefined && { hash }),
    ...(audience !== undefined && { audience }),
    ...(subject !== undefined && { subject }),
    ...(tenant !== undefined && { tenant }),
  };
}
