import type { ActivityStore } from './activity-store.js';
import type { WebhookEventCatalog } from '../events/event-catalog.js';
import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import { invalidOptions, readArgument } from '../options/read-options.js';
import { unprintedHeaders } from '../options/unprinted.js';
import {
  currentLimits,
  type EndpointRegistry,
  type RegisteredEndpoint,
} from './endpoint.registry.js';
import { attemptPaused, releaseKeys } from '../queue/delivery-list.js';
import { endpointLane, type DeliveryLimits } from '../queue/webhook-delivery.js';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import { PublisherLog } from '../signing/publisher-log.js';
import { type EndpointState, limitsOf } from '../sending/endpoint.js';
import { dataOf, deliveryTo, draftEvent } from '../sending/event-draft.js';
import type { WebhookSender } from '../sending/webhook.sender.js';
import {
  commutes,
  ENDPOINT_CHANGES,
  EndpointInput,
  LIST_REQUEST,
  NEW_ENDPOINT,
  patched,
  readScope,
  ROTATION,
  TEST,
} from './endpoint-input.js';
import { matchesFilter } from './endpoint-filter.js';
import { LimitChecks } from './endpoint-limits.js';
import { makeEndpointKey, rotatedKeys } from './secret-sealer.js';
import { openCredentials, sealCredentials, sharesCredentials } from './stored-credentials.js';
import type { EndpointChange } from './stored.endpoints.js';
import type { EndpointCredentials } from '../sending/endpoint-credentials.js';
import { enabledAt, type StoredEndpoint, withoutRetired } from './endpoint-store.js';
import type { WebhookEventName } from '../token/webhook-event-map.js';
import type {
  CreatedEndpoint,
  EndpointChanges,
  EndpointCircuitView,
  EndpointFormat,
  EndpointFormatPage,
  EndpointListRequest,
  EndpointPage,
  EndpointScope,
  EndpointTestOptions,
  EndpointTestResult,
  KeyRotationOptions,
  NewEndpoint,
  RotatedKey,
  WebhookEndpointView,
} from './webhook-endpoint.interface.js';
import type { ResolvedEndpointOptions } from './endpoint-options.js';

const TEST_EVENT = 'webhook.test';

/**
 * Manages endpoints at run time.
 *
 * Pass a scope, `{ tenant }`, to limit a call to one tenant: an endpoint of another tenant is reported as `unknown_endpoint`,
 * exactly like one that does not exist. Configured endpoints can be read, but only the configuration changes them.
 *
 * All methods throw {@link WebhookStoreError} `store_unavailable` if the store cannot be reached.
 */
export class WebhookEndpoints {
  private readonly input: EndpointInput;
  private readonly limits: LimitChecks;
  private readonly log = new PublisherLog();
  private memoryWarningLogged = false;

  /** @internal Its parameters need the types of axios, which an application that only receives does not have. */
  constructor(
    private readonly options: ResolvedEndpointOptions,
    private readonly registry: EndpointRegistry,
    private readonly sender: Pick<WebhookSender, 'attempt'>,
    private readonly queue: Pick<WebhookQueue, 'limitLane' | 'list' | 'redeliver' | 'skip'>,
  ) {
    this.input = new EndpointInput(options);
    const { endpointLimits, endpointStore, clock } = options;
    this.limits = new LimitChecks(endpointLimits, endpointStore, clock);
  }

  /**
   * Creates an endpoint, which receives events that are published from now on.
   *
   * @returns the endpoint; and its secret, unless you passed one. The secret cannot be read again
   * @throws {@link WebhookDeliveryError} `invalid_option` with every problem in `problems`, `endpoint_exists`,
   *   `limit_reached` if the tenant has as many as `endpointLimits.perTenant` allows
   * @throws {@link WebhookDestinationBlockedError} if the egress guard refuses the URL or an address of its host
   *
   * @example
   * ```ts
   * const { endpoint, secret } = await endpoints.create({ tenant: 'acme', url, events: ['order.*'] });
   * ```
   */
  async create(endpoint: NewEndpoint): Promise<CreatedEndpoint> {
    const draft = this.input.read(NEW_ENDPOINT, endpoint);
    const { id = randomUUID(), tenant, description, metadata } = draft;
    const url = (await this.options.egress.checkResolvedUrl(draft.url!)).href;
    this.limits.requireWithin(draft.settings);
    await this.checkTokenUrl(draft.credentials);
    const { endpointStore, sealer, clock } = this.options;
    const now = clock.now();
    const wanted = { given: draft.secret, profile: this.input.profileOf(draft.settings) };
    const made =
      draft.signing === 'publisher' ? undefined : makeEndpointKey(sealer, id, wanted, now);
    const stored = {
      id,
      tenant,
      url,
      events: draft.events!,
      description,
      metadata,
      settings: draft.settings,
      keys: made === undefined ? [] : [made.key],
      ...(draft.credentials && {
        credentials: sealCredentials(sealer, { id, url }, draft.credentials),
      }),
      version: 1,
      createdAt: now,
      updatedAt: now,
    };
    await this.limits.addWithin(tenant, async () => {
      const isTaken = this.registry.isConfigured(id) || !(await endpointStore.insert(stored));
      if (isTaken) {
        throw new WebhookDeliveryError(
          'endpoint_exists',
          'An endpoint with this id exists already: choose another id, or leave it out for a random one.',
        );
      }
      // Other processes may have found space too, and together they may not exceed the limit.
      try {
        await this.limits.requireSpace(tenant, 0);
      } catch (error) {
        await this.registry.stored.remove(id);
        throw error;
      }
    });
    this.warnOfMemory();
    return { endpoint: this.view(stored), secret: made?.secret };
  }

  /**
   * The events that the application has defined.
   *
   * @hidden
   */
  async definedEvents(): Promise<WebhookEventCatalog | undefined> {
    return this.options.events;
  }

  /**
   * The log of what was done to the endpoints.
   *
   * @hidden
   */
  async activity(): Promise<ActivityStore> {
    return this.options.endpointStore.activity;
  }

  /** @throws {@link WebhookDeliveryError} `unknown_endpoint` */
  async get(id: string, scope?: EndpointScope): Promise<WebhookEndpointView> {
    return this.view(await this.registry.row(id, readScope(scope)));
  }

  /**
   * Lists endpoints page by page, ordered by id.
   *
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  async list(request: EndpointListRequest = {}): Promise<EndpointPage> {
    const page = readArgument(LIST_REQUEST, request, 'request');
    const { rows, next } = await this.registry.page(page);
    return { endpoints: rows.map((row) => this.view(row)), next };
  }

  /**
   * Says which wire format each endpoint gets, and which one it acknowledged last, page by page. What was acknowledged is known to each
   * process from its own deliveries since it started.
   *
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  async report(request: EndpointListRequest = {}): Promise<EndpointFormatPage> {
    const page = readArgument(LIST_REQUEST, request, 'request');
    const { rows, next } = await this.registry.page(page);
    return { endpoints: rows.map((row) => this.formatOf(row)), next };
  }

  /**
   * As {@link report}, for one endpoint.
   *
   * @throws {@link WebhookDeliveryError} `unknown_endpoint`
   */
  async format(id: string, scope?: EndpointScope): Promise<EndpointFormat> {
    return this.formatOf(await this.registry.row(id, readScope(scope)));
  }

  /** A copy of an endpoint without its sealed keys. */
  private view(endpoint: StoredEndpoint): WebhookEndpointView {
    const source = this.registry.isConfigured(endpoint.id) ? 'options' : 'store';
    const { id, tenant, url, events, description, metadata, settings, keys, disabled, pausedAt } =
      endpoint;
    const { headers } = settings;
    const { credentials } = endpoint;
    return {
      id,
      tenant,
      url,
      events: [...events],
      description,
      metadata: metadata && { ...metadata },
      settings:
        headers === undefined
          ? { ...settings }
          : { ...settings, headers: unprintedHeaders(headers) },
      keys: keys.map(({ kid, notBefore }) => ({ kid, signsFrom: new Date(notBefore) })),
      ...(credentials && { credentials: [...credentials.kinds] }),
      disabled: disabled && { at: new Date(disabled.at), reason: disabled.reason },
      pausedAt: pausedAt === undefined ? undefined : new Date(pausedAt),
      source,
      createdAt: source === 'store' ? new Date(endpoint.createdAt) : undefined,
      updatedAt: source === 'store' ? new Date(endpoint.updatedAt) : undefined,
      version: endpoint.version,
    };
  }

  private formatOf(row: StoredEndpoint): EndpointFormat {
    const { tenant, profile, state } = this.registry.of(row);
    const { acknowledged: last } = state;
    const acknowledged = last && {
      profile: last.profile,
      since: new Date(last.since),
      at: new Date(last.at),
    };
    return { id: row.id, tenant, profile, acknowledged };
  }

  /**
   * Changes an endpoint. Pending deliveries use the new settings. Concurrent updates are merged, unless they change the same
   * member.
   *
   * @throws {@link WebhookDeliveryError} `invalid_option` with every problem in `problems`, `unknown_endpoint`,
   *   `endpoint_changed`, `unsupported_option` for a configured endpoint
   * @throws {@link WebhookDestinationBlockedError} if the egress guard refuses the URL or an address of its host
   */
  async update(
    id: string,
    changes: EndpointChanges,
    scope?: EndpointScope,
  ): Promise<WebhookEndpointView> {
    const draft = this.input.read(ENDPOINT_CHANGES, changes);
    this.limits.requireWithin(draft.settings);
    const stored = await this.requireStored(id, scope);
    const url = draft.url && (await this.options.egress.checkResolvedUrl(draft.url)).href;
    await this.checkTokenUrl(draft.credentials);
    const patch = url === undefined ? draft : { ...draft, url };
    const view = await this.change(id, scope, {
      before: stored,
      make: (current) => this.updated(current, patch),
      commutes: (before, now) => commutes(patch, before, now),
    });
    const blocks = (view.settings.onDead ?? this.options.defaults.onDead) === 'block';
    if (changes.onDead !== undefined && !blocks) await releaseKeys(id, this.queue);
    return view;
  }

  /** @throws {@link WebhookDeliveryError} `invalid_option` */
  private updated(
    current: StoredEndpoint,
    { credentials, ...patch }: ReturnType<EndpointInput['read']>,
  ): StoredEndpoint {
    const { sealer } = this.options;
    const changed = patched(current, patch);
    const wanted = changed.url === current.url ? changed : this.restarted(changed);
    const kept = wanted.credentials;
    if (credentials === undefined && kept !== undefined && !sharesCredentials(wanted, current)) {
      const message =
        'is at another origin, and the credentials of the endpoint were set for the old one: pass credentials too, or null to remove them';
      throw invalidOptions([{ path: 'url', message }], 'The endpoint is');
    }
    this.input.requireUsable(
      wanted.settings,
      current.settings,
      () => current.keys.map((key) => sealer.open(current.id, key)),
      (isOtherProfile) =>
        credentials ?? (isOtherProfile && kept ? openCredentials(sealer, wanted, kept) : undefined),
    );
    if (credentials === undefined) return wanted;
    return { ...wanted, credentials: sealCredentials(sealer, wanted, credentials) };
  }

  private async checkTokenUrl(credentials: EndpointCredentials | undefined): Promise<void> {
    const url = credentials?.oauth2?.tokenUrl;
    if (url !== undefined) await this.options.egress.checkResolvedUrl(url);
  }

  /**
   * Deletes an endpoint and its keys. Its pending deliveries are given up (`unknown_endpoint`) when they are due and at least 15 minutes
   * old; they can be redelivered once an endpoint with the same id and tenant exists again.
   *
   * @throws {@link WebhookDeliveryError} `unknown_endpoint`, `unsupported_option` for a configured endpoint; what the queue throws: then
   *   call it again, until it throws `unknown_endpoint`
   */
  async delete(id: string, scope?: EndpointScope): Promise<void> {
    const stored = await this.requireStored(id, scope).catch(async (error: unknown) => {
      // An earlier call may have ended before it released the keys. Released ahead, deliveries would still be sent.
      if ((await this.registry.find(id)) === undefined) await releaseKeys(id, this.queue);
      throw error;
    });
    // A concurrent call may have deleted it first, with the same result.
    await this.registry.stored.remove(id);
    await this.limitLane(stored, { since: this.restarted(stored).enabledAt });
    await releaseKeys(id, this.queue);
  }

  /**
   * Disables an endpoint. It receives no new events, and its pending deliveries are given up (`endpoint_disabled`) when they
   * are due. A configured endpoint is disabled in this process only, until the process ends.
   *
   * @throws {@link WebhookDeliveryError} `unknown_endpoint`, `endpoint_changed`
   */
  async disable(id: string, scope?: EndpointScope): Promise<WebhookEndpointView> {
    const disabled = { at: this.options.clock.now(), reason: 'requested' } as const;
    return this.switch(id, scope, {
      state: (state) => (state.disabled = disabled),
      stored: (current) => ({ ...current, disabled }),
    });
  }

  /**
   * Enables an endpoint, and resets its circuit. It does not {@link resume} a paused one. A configured endpoint is enabled in
   * this process only.
   *
   * @throws {@link WebhookDeliveryError} `unknown_endpoint`, `endpoint_changed`
   */
  async enable(id: string, scope?: EndpointScope): Promise<WebhookEndpointView> {
    return this.switch(id, scope, {
      state: (state) => {
        state.forget();
        state.disabled = undefined;
      },
      stored: ({ disabled: _disabled, ...current }) => this.restarted(current),
    });
  }

  /**
   * Pauses an endpoint: events are still recorded for it, and no delivery is attempted until it is resumed. Attempts that are
   * under way end. Unlike {@link disable}, it gives nothing up, and the wait counts as no attempt. A configured endpoint is
   * paused in this process only, until the process ends.
   *
   * @throws {@link WebhookDeliveryError} `unknown_endpoint`, `endpoint_changed`
   */
  async pause(id: string, scope?: EndpointScope): Promise<WebhookEndpointView> {
    const pausedAt = this.options.clock.now();
    return this.switch(id, scope, {
      state: (state) => (state.pausedAt ??= pausedAt),
      stored: (current) => (current.pausedAt === undefined ? { ...current, pausedAt } : undefined),
    });
  }

  /**
   * Resumes a paused endpoint, and resets its circuit. The deliveries that became due during the pause are attempted now.
   *
   * @returns once they are due; after an error, call it again
   * @throws {@link WebhookDeliveryError} `unknown_endpoint`, `endpoint_changed`; what the queue throws
   */
  async resume(id: string, scope?: EndpointScope): Promise<WebhookEndpointView> {
    const view = await this.switch(id, scope, {
      state: (state) => {
        if (state.pausedAt !== undefined) state.forget();
        state.pausedAt = undefined;
      },
      stored: ({ pausedAt, ...current }) =>
        pausedAt === undefined ? undefined : this.restarted(current),
    });
    await attemptPaused(id, this.queue);
    return view;
  }

  /**
   * Replaces an endpoint's key. The new key signs once the overlap is over, so that the receiver can add it first. Standard Webhooks are
   * signed with both keys during the overlap. Use `overlap: 0` for a leaked secret: the old key is dropped immediately.
   *
   * @throws {@link WebhookDeliveryError} `invalid_option`, `unknown_endpoint`, `endpoint_changed`; `limit_reached`
   *   if as many keys as `endpointLimits.keys` allows sign now or later; `unsupported_option` for a configured endpoint, and
   *   for one that the publisher signs for
   */
  async rotateKey(
    id: string,
    options: KeyRotationOptions = {},
    scope?: EndpointScope,
  ): Promise<RotatedKey> {
    const { overlap, secret: given } = readArgument(ROTATION, options, 'options');
    const stored = await this.requireStored(id, scope);
    this.input.requireSecret(given, stored.settings);
    const { sealer, clock } = this.options;
    const notBefore = clock.now() + overlap;
    const profile = this.input.profileOf(stored.settings);
    const { key, secret } = makeEndpointKey(sealer, id, { given, profile }, notBefore);
    await this.change(id, scope, {
      before: stored,
      make: (current) => {
        if (current.keys.length === 0) {
          throw new WebhookDeliveryError(
            'unsupported_option',
            "The endpoint has no key of its own: the publisher's key signs for it, and is rotated in the configuration.",
          );
        }
        const keys = rotatedKeys(withoutRetired(current.keys, clock.now()), key, overlap);
        this.limits.requireFewKeys(keys);
        return { ...current, keys };
      },
      commutes: (before, now) =>
        before.keys.at(-1)?.kid === now.keys.at(-1)?.kid &&
        isDeepStrictEqual(profile, this.input.profileOf(now.settings)),
    });
    return { kid: key.kid, signsFrom: new Date(notBefore), secret };
  }

  /**
   * Returns the state of an endpoint's circuit breaker. Each process has its own: it says what this one has learnt since it
   * started.
   *
   * @throws {@link WebhookDeliveryError} `unknown_endpoint`
   */
  async circuit(id: string, scope?: EndpointScope): Promise<EndpointCircuitView> {
    const { circuit, overload } = (await this.endpointOf(id, scope)).state;
    const now = this.options.clock.now();
    const failingSince = circuit.failingSince(now);
    const until = Math.max(overload.until(now), circuit.nextTrialAt ?? 0);
    return {
      state: circuit.state,
      failuresInRow: circuit.failuresInRow,
      failingSince: failingSince === undefined ? undefined : new Date(failingSince),
      pausedUntil: until > now ? new Date(until) : undefined,
    };
  }

  /**
   * Sends the signed event `webhook.test` with the data `{ "test": true }` immediately, also to a disabled or paused endpoint. The
   * request is neither logged nor retried, and does not affect the endpoint's state.
   *
   * With the option `event`, the first example of a defined event is sent: a real event to the receiver.
   *
   * @throws {@link WebhookDeliveryError} `unknown_endpoint`; `unknown_event` if the event is not defined or has no example;
   *   `limit_reached` after `endpointLimits.testsPerMinute` in a minute
   */
  async test(id: string, options?: EndpointTestOptions): Promise<EndpointTestResult> {
    const given = options === undefined ? undefined : readArgument(TEST, options, 'options');
    const { tenant, event = TEST_EVENT } = given ?? {};
    const endpoint = await this.endpointOf(id, tenant === undefined ? undefined : { tenant });
    const data = this.sampleOf(event);
    this.limits.requireTestRate(id);
    const draft = draftEvent(event, data, {}, this.options.clock.now());
    const { result } = await this.sender.attempt(deliveryTo(endpoint, draft), endpoint, 1);
    const { statusCode, durationMs } = result;
    const failureReason = result.verdict === 'acknowledged' ? undefined : result.reason;
    return { delivered: failureReason === undefined, statusCode, durationMs, failureReason };
  }

  /**
   * Says whether an event matches the endpoint's filter, without sending it; `true` if the endpoint has none. It regards neither the
   * endpoint's `events` nor whether it is disabled. Bytes match no condition on data.
   *
   * @throws {@link WebhookDeliveryError} `unknown_endpoint`; `invalid_option` if the event's name is none; `invalid_data`
   */
  async testFilter(
    id: string,
    event: WebhookEventName,
    data?: unknown,
    scope?: EndpointScope,
  ): Promise<boolean> {
    const contentType = data instanceof Uint8Array ? 'application/octet-stream' : undefined;
    const draft = draftEvent(event, data, { contentType }, this.options.clock.now());
    const { filter } = await this.endpointOf(id, scope);
    return filter === undefined || matchesFilter(filter, event, dataOf(draft));
  }

  /**
   * Seals the secrets of all endpoints with the first sealing key, so that the other keys can be removed. It is safe to repeat,
   * and to run while endpoints are changed.
   *
   * @returns how many endpoints were resealed
   * @throws {@link WebhookStoreError} `sealed_secret_unreadable`, after all others, if a secret cannot be decrypted
   */
  async reseal(): Promise<number> {
    return this.registry.stored.reseal();
  }

  private async endpointOf(
    id: string,
    scope: EndpointScope | undefined,
  ): Promise<RegisteredEndpoint> {
    return this.registry.of(await this.registry.row(id, readScope(scope)));
  }

  private sampleOf(event: string): unknown {
    if (event === TEST_EVENT) return { test: true };
    const { events } = this.options;
    const definition = events?.find(event);
    const [example] = definition?.examples ?? [];
    if (example !== undefined) return example;
    const problem =
      definition === undefined
        ? (events?.unknown(event) ?? 'no events are defined; pass defineEvents({ … }) as "events"')
        : `"${event}" has no example; add one to its definition`;
    throw new WebhookDeliveryError('unknown_event', `event: ${problem}`);
  }

  private async change(
    id: string,
    scope: EndpointScope | undefined,
    change: EndpointChange,
  ): Promise<WebhookEndpointView> {
    const { endpoint } = await this.registry.stored.change(id, readScope(scope), change);
    await this.limitLane(endpoint, currentLimits(this.registry.of(endpoint)));
    return this.view(endpoint);
  }

  private async requireStored(
    id: string,
    scope: EndpointScope | undefined,
  ): Promise<StoredEndpoint> {
    const endpoint = await this.registry.row(id, readScope(scope));
    if (!this.registry.isConfigured(id)) return endpoint;
    throw new WebhookDeliveryError(
      'unsupported_option',
      "The endpoint is defined in the publisher's options: change it in the configuration.",
    );
  }

  /** Changes the state of a configured endpoint in this process, and a stored one for all processes. */
  private async switch(
    id: string,
    scope: EndpointScope | undefined,
    change: { state: (state: EndpointState) => void; stored: EndpointChange['make'] },
  ): Promise<WebhookEndpointView> {
    const endpoint = await this.registry.row(id, readScope(scope));
    if (!this.registry.isConfigured(id)) return this.change(id, scope, { make: change.stored });
    const registered = this.registry.of(endpoint);
    const { circuit } = registered.state;
    change.state(registered.state);
    if (registered.state.circuit !== circuit) {
      // Its next delivery sets the limits without this time again, so that processes agree.
      const since = this.options.clock.now();
      await this.limitLane(endpoint, { ...limitsOf(registered), since });
    }
    return this.get(id, scope);
  }

  /** Replaces the limits of an endpoint for its pending deliveries. If this fails, the next attempt replaces them. */
  private async limitLane(
    { id, tenant }: Pick<StoredEndpoint, 'id' | 'tenant'>,
    limits: DeliveryLimits,
  ): Promise<void> {
    const lane = endpointLane({ endpointId: id, tenant });
    await this.queue.limitLane?.(lane, limits).catch(() => {});
  }

  /** Makes every process discard the endpoint's circuit. */
  private restarted(endpoint: StoredEndpoint): StoredEndpoint {
    // Strictly later than before, even within one millisecond: other processes compare the values.
    const now = Math.max(this.options.clock.now(), enabledAt(endpoint) + 1);
    return { ...endpoint, enabledAt: now };
  }

  private warnOfMemory(): void {
    if (this.memoryWarningLogged || this.options.endpointStore.durable) return;
    this.memoryWarningLogged = true;
    this.log.log(
      () =>
        'Managed endpoints are stored in memory and lost when this process ends; set a durable "endpointStore" to keep them.',
    );
  }
}
