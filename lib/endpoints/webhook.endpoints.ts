import { randomUUID } from 'node:crypto';
import { parseDuration } from '../clock/duration.js';
import { ConfigurationFaults } from '../options/configuration-faults.js';
import { readStrictly } from '../options/strict-options.js';
import type { EndpointRegistry } from './endpoint.registry.js';
import { PublisherLog } from '../signing/publisher-log.js';
import type { WebhookSender } from '../sending/webhook.sender.js';
import { EndpointDirectory, readScope, endpointView } from './endpoint.directory.js';
import {
  EndpointEditor,
  type EndpointChange,
  type EndpointScope,
  resealAll,
} from './endpoint.editor.js';
import { EndpointInput, checkSecret, throwIfWrong, commutes, patched } from './endpoint-input.js';
import { makeEndpointKey, rotatedKeys } from './secret-sealer.js';
import {
  endpointExists,
  endpointHasNoKey,
  endpointIsConfigured,
  type StoredEndpoint,
} from './endpoint-store.js';
import { EndpointTester } from './endpoint.tester.js';
import type {
  CreatedEndpoint,
  EndpointChanges,
  EndpointListRequest,
  EndpointPage,
  EndpointTestResult,
  KeyRotationOptions,
  NewEndpoint,
  RotatedKey,
  WebhookEndpointView,
} from './webhook-endpoint.interface.js';
import type { EndpointDisabledReason } from '../sending/delivery-target.js';
import type { ResolvedEndpointOptions } from './endpoint-options.js';

const DEFAULT_OVERLAP = '24h';

/**
 * Creates, changes and removes endpoints while the application runs.
 *
 * Each method takes a scope, `{ tenant }`, beyond which nothing is seen: another tenant's endpoint is `unknown_endpoint`,
 * like one that does not exist. Endpoints of the options are read like the others; the configuration alone changes them.
 *
 * All methods throw {@link WebhookStoreError} `store_unavailable` where the store cannot be reached.
 */
export class WebhookEndpoints {
  private readonly input: EndpointInput;
  private readonly directory: EndpointDirectory;
  private readonly editor: EndpointEditor;
  private readonly tester: EndpointTester;
  private readonly log = new PublisherLog();
  private hasToldOfMemory = false;

  constructor(
    private readonly options: ResolvedEndpointOptions,
    private readonly registry: EndpointRegistry,
    sender: WebhookSender,
  ) {
    const { endpointStore, sealer, clock } = options;
    this.input = new EndpointInput(options);
    this.directory = new EndpointDirectory(registry.configured, endpointStore);
    this.editor = new EndpointEditor(endpointStore, sealer, clock);
    this.tester = new EndpointTester(sender, clock);
  }

  /**
   * Creates an endpoint. It gets what is published from now on.
   *
   * @returns the endpoint, and its secret if it was made here: the only time it is given out
   * @throws {@link WebhookDeliveryError} `invalid_option` with every fault in `faults`, `endpoint_exists`,
   *   `unsupported_option` where the store takes no changes
   * @throws {@link WebhookDestinationBlockedError} for a URL, or an address of its host, that the egress guard refuses
   *
   * @example
   * ```ts
   * const { endpoint, secret } = await endpoints.create({ tenant: 'acme', url, events: ['order.*'] });
   * ```
   */
  async create(endpoint: NewEndpoint): Promise<CreatedEndpoint> {
    const draft = this.input.readNew(endpoint);
    const { id = randomUUID(), tenant, description, metadata } = draft;
    const url = (await this.options.egress.checkDestination(draft.url!)).href;
    if (this.registry.configured.has(id)) throw endpointExists();
    const { endpointStore, sealer, clock } = this.options;
    const now = clock.now();
    const made =
      draft.signing === 'publisher' ? undefined : makeEndpointKey(sealer, id, draft.secret, now);
    const stored = {
      id,
      ...(tenant !== undefined && { tenant }),
      url,
      events: draft.events!,
      ...(description !== undefined && { description }),
      ...(metadata !== undefined && { metadata }),
      settings: draft.settings,
      keys: made === undefined ? [] : [made.key],
      version: 1,
      createdAt: now,
      updatedAt: now,
    };
    if (!(await endpointStore.insert(stored))) throw endpointExists();
    this.tellOfMemory();
    const secret = made?.secret;
    return { endpoint: endpointView(stored, 'store'), ...(secret !== undefined && { secret }) };
  }

  /** @throws {@link WebhookDeliveryError} `unknown_endpoint` */
  async get(id: string, scope?: EndpointScope): Promise<WebhookEndpointView> {
    const { endpoint, source } = await this.directory.find(id, readScope(scope));
    return endpointView(endpoint, source);
  }

  /**
   * Lists endpoints page by page, in the order of their ids.
   *
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  async list(request: EndpointListRequest = {}): Promise<EndpointPage> {
    return this.directory.list(request);
  }

  /**
   * Changes an endpoint; deliveries that wait go to it as it is then. Of two updates at the same time both hold, unless
   * they change the same member.
   *
   * @throws {@link WebhookDeliveryError} `invalid_option` with every fault in `faults`, `unknown_endpoint`,
   *   `endpoint_changed`, `unsupported_option` for an endpoint of the options
   * @throws {@link WebhookDestinationBlockedError} for a URL, or an address of its host, that the egress guard refuses
   */
  async update(
    id: string,
    changes: EndpointChanges,
    scope?: EndpointScope,
  ): Promise<WebhookEndpointView> {
    const draft = this.input.readChanges(changes);
    await this.requireStored(id, scope);
    const url = draft.url && (await this.options.egress.checkDestination(draft.url)).href;
    const patch = url === undefined ? draft : { ...draft, url };
    return this.change(id, scope, {
      make: (current) => {
        const wanted = patched(current, patch);
        this.input.requireUsable(wanted.settings);
        return wanted;
      },
      commutes: (before, now) => commutes(patch, before, now),
    });
  }

  /**
   * Removes an endpoint, and its keys with it. What still waits for it is given up (`unknown_endpoint`), and can be
   * redelivered once there is an endpoint of its id and tenant again.
   *
   * @throws {@link WebhookDeliveryError} `unknown_endpoint`, `unsupported_option` for an endpoint of the options
   */
  async delete(id: string, scope?: EndpointScope): Promise<void> {
    await this.requireStored(id, scope);
    // Somebody else may have been faster; gone it is.
    await this.options.endpointStore.remove(id);
  }

  /**
   * Stops sending to an endpoint. It gets no new events, and what waits for it is given up (`endpoint_disabled`) when it
   * is due. An endpoint of the options is disabled in this process only, and until it ends.
   *
   * @throws {@link WebhookDeliveryError} `unknown_endpoint`, `endpoint_changed`
   */
  async disable(id: string, scope?: EndpointScope): Promise<WebhookEndpointView> {
    const reason: EndpointDisabledReason = 'requested';
    const disabled = { at: this.options.clock.now(), reason };
    const state = await this.configuredState(id, scope);
    if (state !== undefined) {
      state.disabled = disabled;
      return this.get(id, scope);
    }
    return this.change(id, scope, { make: (current) => ({ ...current, disabled }) });
  }

  /**
   * Sends to an endpoint again, and forgets what was learnt of it: its circuit, a pause, why it was disabled. An endpoint
   * of the options is enabled in this process only.
   *
   * @throws {@link WebhookDeliveryError} `unknown_endpoint`, `endpoint_changed`
   */
  async enable(id: string, scope?: EndpointScope): Promise<WebhookEndpointView> {
    const state = await this.configuredState(id, scope);
    if (state !== undefined) {
      state.forget();
      return this.get(id, scope);
    }
    return this.change(id, scope, {
      make: (current) => enabled(current, this.options.clock.now()),
    });
  }

  /**
   * Replaces an endpoint's key. The new one signs when the overlap is over, so that the receiver can learn it first; the
   * old one is dropped with the next change after that. `overlap: 0` is for a secret that has leaked: the old one is gone
   * at once.
   *
   * @throws {@link WebhookDeliveryError} `invalid_option`, `unknown_endpoint`, `endpoint_changed`; `unsupported_option`
   *   for an endpoint of the options, and for one that the publisher signs for
   */
  async rotateKey(
    id: string,
    options: KeyRotationOptions = {},
    scope?: EndpointScope,
  ): Promise<RotatedKey> {
    readStrictly(options, 'options', { overlap: 'optional', secret: 'optional' });
    const faults = new ConfigurationFaults('');
    const overlap = parseDuration(options.overlap ?? DEFAULT_OVERLAP);
    if (options.secret !== undefined) checkSecret(options.secret, faults);
    faults.require(overlap !== undefined, 'overlap', "must be a duration: milliseconds, or '24h'");
    throwIfWrong(faults);
    await this.requireStored(id, scope);
    const { sealer, clock } = this.options;
    const notBefore = clock.now() + overlap!;
    const { key, secret } = makeEndpointKey(sealer, id, options.secret, notBefore);
    await this.change(id, scope, {
      make: (current) => {
        if (current.keys.length === 0) throw endpointHasNoKey();
        return { ...current, keys: rotatedKeys(current.keys, key, overlap!) };
      },
      commutes: (before, now) => before.keys.at(-1)?.kid === now.keys.at(-1)?.kid,
    });
    return {
      kid: key.kid,
      signsFrom: new Date(notBefore),
      ...(secret !== undefined && { secret }),
    };
  }

  /**
   * Sends a signed event `webhook.test` with the data `{ "test": true }`, once and at once, also to an endpoint that is
   * disabled. It is neither recorded nor tried again, and changes nothing for the endpoint.
   *
   * @throws {@link WebhookDeliveryError} `unknown_endpoint`
   */
  async test(id: string, scope?: EndpointScope): Promise<EndpointTestResult> {
    const { endpoint, source } = await this.directory.find(id, readScope(scope));
    const target =
      source === 'store'
        ? this.registry.targetOfStored(endpoint)
        : await this.registry.endpoint(endpoint.id);
    return this.tester.test(target!);
  }

  /**
   * Seals the secrets of all endpoints with the first sealing key, so that the others can be taken away. It may run while
   * endpoints are changed, and may be repeated.
   *
   * @returns how many endpoints were sealed anew
   * @throws {@link WebhookStoreError} `sealed_secret_unreadable`, after all others, where a secret cannot be opened
   */
  async reseal(): Promise<number> {
    const { endpointStore, sealer } = this.options;
    return resealAll(endpointStore, sealer, this.editor);
  }

  private async change(
    id: string,
    scope: EndpointScope | undefined,
    change: EndpointChange,
  ): Promise<WebhookEndpointView> {
    const { endpoint } = await this.editor.change(id, readScope(scope), change);
    return endpointView(endpoint, 'store');
  }

  private async requireStored(id: string, scope: EndpointScope | undefined): Promise<void> {
    const { source } = await this.directory.find(id, readScope(scope));
    if (source === 'options') throw endpointIsConfigured();
  }

  private async configuredState(
    id: string,
    scope: EndpointScope | undefined,
  ): Promise<ReturnType<EndpointRegistry['configuredState']>> {
    const { source } = await this.directory.find(id, readScope(scope));
    return source === 'options' ? this.registry.configuredState(id) : undefined;
  }

  private tellOfMemory(): void {
    if (this.hasToldOfMemory || this.options.endpointStore.durable) return;
    this.hasToldOfMemory = true;
    this.log.log(
      () =>
        "Endpoints are kept in this process's memory: they are gone when it ends. An endpointStore that is durable keeps them.",
    );
  }
}

function enabled(endpoint: StoredEndpoint, now: number): StoredEndpoint {
  const { disabled: _disabled, enabledAt, ...rest } = endpoint;
  // Later than before, also within one millisecond: processes go by the difference.
  return { ...rest, enabledAt: Math.max(now, (enabledAt ?? 0) + 1) };
}
