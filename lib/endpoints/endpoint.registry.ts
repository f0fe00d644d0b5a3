import { errorName, isWebhookError } from '../errors/webhook.error.js';
import { matchesEvent } from '../token/event-name.js';
import { after, type MaybePromise } from '../token/maybe-promise.js';
import type { WebhookDelivery } from '../queue/webhook-delivery.interface.js';
import { DestinationState, type EndpointDisabled } from '../sending/delivery-target.js';
import { storedOfConfigured, OptionsEndpointStore } from './options-endpoint.store.js';
import { looksLikeUrl, type StoredEndpoint } from './endpoint-store.js';
import { EndpointEditor } from './endpoint.editor.js';
import { MemoryEndpointStore } from './memory-endpoint.store.js';
import { StoredTargets } from './stored-targets.js';
import { PublisherLog } from '../signing/publisher-log.js';
import type { ResolvedEndpoint, ResolvedEndpointOptions } from './endpoint-options.js';
import { type EndpointTarget, isDisabled } from './endpoint-target.js';

/** URLs whose state is remembered; the one not used for longest is forgotten first. */
const MAX_REMEMBERED_URLS = 1_000;

interface Subscription {
  readonly endpoint: ResolvedEndpoint;
  readonly target: EndpointTarget;
}

/**
 * Knows the destinations: the configured endpoints, those of the store, and the URLs that callers have named. What
 * needs no store is answered at once.
 */
export class EndpointRegistry {
  /** The configured endpoints, to be read like those of the store. */
  readonly configured: OptionsEndpointStore;

  private readonly subscriptions: ReadonlyMap<string, Subscription>;
  private readonly stored: StoredTargets;
  private readonly editor: EndpointEditor;
  private readonly log = new PublisherLog();
  private hasToldOfStore = false;
  private readonly urls = new Map<string, EndpointTarget>();

  constructor(private readonly options: ResolvedEndpointOptions) {
    const { endpoints, defaults } = options;
    const now = options.clock.now();
    this.subscriptions = new Map(
      endpoints.map((endpoint) => [endpoint.id, { endpoint, target: targetOf(endpoint, now) }]),
    );
    this.configured = new OptionsEndpointStore(
      endpoints.map((endpoint) => storedOfConfigured(endpoint, defaults, now)),
      (id) => this.configuredState(id)?.disabled,
    );
    this.stored = new StoredTargets(options);
    this.editor = new EndpointEditor(options.endpointStore, options.sealer, options.clock);
  }

  /**
   * The enabled endpoints of the tenant that want the event.
   *
   * @param tx - the caller's open transaction; a second connection could be one that its pool no longer has
   * @throws what the store throws
   */
  subscribed(
    event: string,
    tenant: string | undefined,
    tx?: unknown,
  ): MaybePromise<readonly EndpointTarget[]> {
    const configured = [...this.subscriptions.values()]
      .filter(({ endpoint }) => endpoint.tenant === tenant && wants(endpoint, event))
      .map(({ target }) => target)
      .filter((target) => !isDisabled(target));
    if (this.storeIsEmpty) return configured;
    return this.subscribedInStore(event, tenant, tx).then((stored) => [...configured, ...stored]);
  }

  /**
   * The endpoint with this id, of whatever tenant.
   *
   * @throws what the store throws
   */
  endpoint(id: string): MaybePromise<EndpointTarget | undefined> {
    const target = this.subscriptions.get(id)?.target;
    if (target !== undefined || this.storeIsEmpty || looksLikeUrl(id)) return target;
    return this.endpointInStore(id);
  }

  /** The destination of a URL, under the publisher's own key; the egress guard judges it at every attempt. */
  url(url: string): EndpointTarget {
    const known = this.urls.get(url);
    this.urls.delete(url);
    const target = known ?? {
      ...this.options.defaults,
      url,
      label: URL.canParse(url) ? new URL(url).origin : 'no URL',
      state: new DestinationState(),
    };
    this.urls.set(url, target);
    if (this.urls.size > MAX_REMEMBERED_URLS) this.urls.delete(this.urls.keys().next().value!);
    return target;
  }

  /**
   * Where a recorded delivery goes; `undefined` when its endpoint is not there any more, or is another tenant's.
   *
   * @throws what the store throws
   */
  targetOf({ endpointId, url, tenant }: WebhookDelivery): MaybePromise<EndpointTarget | undefined> {
    if (endpointId === undefined) return url === undefined ? undefined : this.url(url);
    return after(this.endpoint(endpointId), (target) => ofTenant(target, tenant));
  }

  /** The destination of an endpoint that was read from the store. */
  targetOfStored(stored: StoredEndpoint): EndpointTarget {
    return this.stored.of(stored);
  }

  /**
   * Tells every process that an endpoint of the store is disabled. This one has stopped already, and stays so where the
   * store cannot be told.
   */
  async keepDisabled(target: EndpointTarget, disabled: EndpointDisabled): Promise<void> {
    const { stored } = target;
    if (stored === undefined) return;
    const isAsItWas = (now: StoredEndpoint): boolean =>
      now.url === stored.url &&
      now.enabledAt === stored.enabledAt &&
      now.createdAt === stored.createdAt;
    try {
      await this.editor.change(stored.id, undefined, {
        // What an attempt has learnt says nothing of another URL, nor of what somebody has mended since.
        make: (now) =>
          now.disabled === undefined && isAsItWas(now) ? { ...now, disabled } : undefined,
      });
      this.hasToldOfStore = false;
    } catch (error) {
      if (isWebhookError(error, 'unknown_endpoint')) return;
      if (this.hasToldOfStore) return;
      this.hasToldOfStore = true;
      this.log.warn(
        () =>
          `The endpoint store cannot be told that ${target.label} is disabled (${nameOf(error)}): only this process has stopped sending to it.`,
      );
    }
  }

  /** What this process has learnt of a configured endpoint. */
  configuredState(id: string): DestinationState | undefined {
    return this.subscriptions.get(id)?.target.state;
  }

  /** An application without managed endpoints pays nothing for them. */
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
          // The options win; and a store that mixes tenants up must not make us do so.
          !this.subscriptions.has(endpoint.id) &&
          endpoint.tenant === tenant &&
          wants(endpoint, event),
      )
      .map((endpoint) => this.stored.of(endpoint))
      .filter((target) => !isDisabled(target));
  }

  private async endpointInStore(id: string): Promise<EndpointTarget | undefined> {
    const stored = await this.options.endpointStore.find(id);
    return stored && this.stored.of(stored);
  }
}

function nameOf(error: unknown): string {
  if (isWebhookError(error)) return error.code;
  return errorName(error);
}

function wants({ events }: Pick<StoredEndpoint, 'events'>, event: string): boolean {
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
    state: new DestinationState(endpoint.disabled ? { at: now, reason: 'requested' } : undefined),
    ...(hash !== undefined && { hash }),
    ...(audience !== undefined && { audience }),
    ...(subject !== undefined && { subject }),
    ...(tenant !== undefined && { tenant }),
  };
}
