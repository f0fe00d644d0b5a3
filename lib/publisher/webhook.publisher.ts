import {
  Logger,
  type BeforeApplicationShutdown,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { publishing } from '../deliveries/delivery.channels.js';
import type { WebhookDeliverer } from '../deliveries/webhook.deliverer.js';
import { looksLikeUrl } from '../endpoints/endpoint-store.js';
import type { EndpointRegistry } from '../endpoints/endpoint.registry.js';
import { isWebhookError, WebhookDeliveryError, errorType } from '../errors/webhook.error.js';
import { readArgument } from '../options/read-options.js';
import { isLimited } from '../queue/lane-limits.js';
import type {
  DeliveryRecord,
  OutgoingDelivery,
  WebhookDelivery,
} from '../queue/webhook-delivery.js';
import { stopQueue, type WebhookQueue, type EnqueuedDelivery } from '../queue/webhook-queue.js';
import { type Endpoint, limitsOf } from '../sending/endpoint.js';
import {
  deliveryTo,
  draftEvent,
  type DraftOptions,
  type EventDraft,
  requireDefined,
  type SignOptions,
  requireSameContent,
} from '../sending/event-draft.js';
import type { WebhookSender } from '../sending/webhook.sender.js';
import { isEventName } from '../token/event-name.js';
import type { WebhookEventName } from '../token/webhook-event-map.js';
import { cannotJoin, type PublishTransaction } from './publish-transaction.js';
import { aborted, FirstAttempts } from './first-attempts.js';
import {
  type EventArguments,
  PUBLISH_ALL_OPTIONS,
  type PublishAllOptions,
  type PublishOptions,
  type PublishResult,
  type SendResult,
  type SignedWebhookRequest,
  PUBLISH_OPTIONS,
  readArguments,
  inEvent,
  prefixed,
  type ReadEvent,
  readEvents,
  SIGN_OPTIONS,
  type WebhookEventToPublish,
} from './publish-options.js';
import type { ResolvedPublisherOptions } from './publisher-options.resolver.js';

/** For each delivery what was recorded before, or `undefined` if it is recorded now. */
type EarlierRecords = readonly (DeliveryRecord | undefined)[];

/** An event with its deliveries, ready to be recorded. */
interface AddressedEvent extends ReadEvent {
  readonly deliveries: readonly {
    readonly delivery: OutgoingDelivery;
    readonly endpoint: Endpoint;
  }[];
}

/** Sends events as signed webhooks. */
export class WebhookPublisher implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger('WebhookPublisher');
  private readonly firstAttempts: FirstAttempts;
  private shuttingDown = false;

  /** @internal Its parameters need the types of axios, which an application that only receives does not have. */
  constructor(
    private readonly options: ResolvedPublisherOptions,
    private readonly endpoints: EndpointRegistry,
    private readonly queue: WebhookQueue,
    private readonly deliverer: WebhookDeliverer,
    private readonly sender: WebhookSender,
    private readonly transaction: PublishTransaction,
  ) {
    this.firstAttempts = new FirstAttempts(queue, options.clock);
    deliverer.onRun((run) => this.firstAttempts.report(run));
  }

  /**
   * Publishes an event to every endpoint that subscribes to it, and whose `filter` it matches.
   *
   * Within a transaction of `@nestjs-cls/transactional`, it is recorded in that transaction if the queue is transactional.
   *
   * @param event - its name, `<entity>.<action>`
   * @param args - the data: a JSON value, or a Buffer or Uint8Array together with the option `contentType`; then the options
   * @returns once every delivery is recorded, before it is delivered
   * @throws {@link WebhookDeliveryError} with nothing recorded: `invalid_data`, `invalid_option`, `unknown_event`,
   *   `unsupported_option`, `id_conflict`, `aborted`, `shutting_down`
   * @throws {@link WebhookStoreError} `store_full`, with nothing recorded; `store_unavailable`: the event may have been recorded if the
   *   connection broke before the answer, so publish it again with the same `id`
   *
   * @example
   * ```ts
   * await publisher.publish('order.created', { id: order.id, total: order.total });
   * ```
   */
  async publish<Event extends WebhookEventName>(
    event: Event,
    ...args: EventArguments<Event, PublishOptions>
  ): Promise<PublishResult> {
    return named('publish', event, async () => {
      this.refuseWhenShuttingDown();
      const { data, options } = readArguments(args, PUBLISH_OPTIONS);
      // Before the first await: a caller that does not await the result may end its transaction, or change its data.
      const transaction = this.transaction.choose(options.tx);
      const draft = draftEvent(event, data, options, this.options.clock.now());
      const [result] = await this.record([{ draft, options }], transaction);
      return result!;
    });
  }

  /**
   * Publishes many events at once, in one round trip to the queue: all of them are recorded, in their order, or none.
   *
   * @param events - at most 1,000
   * @param options - `tx` as for {@link publish}
   * @returns the result of each event, in their order
   * @throws {@link WebhookDeliveryError}, {@link WebhookStoreError} as {@link publish}, with nothing recorded
   *
   * @example
   * ```ts
   * await publisher.publishAll(orders.map((order) => ({ event: 'order.created', data: order })));
   * ```
   */
  async publishAll(
    events: readonly WebhookEventToPublish[],
    options: PublishAllOptions = {},
  ): Promise<readonly PublishResult[]> {
    this.refuseWhenShuttingDown();
    const { tx } = readArgument(PUBLISH_ALL_OPTIONS, options);
    // Before the first await, as in publish.
    const transaction = this.transaction.choose(tx);
    return this.record(readEvents(events, this.options.clock.now()), transaction);
  }

  /**
   * Sends an event to one endpoint or URL, also to an endpoint that has not subscribed to it, or whose `filter` it does not match.
   *
   * The delivery is queued like any other: if its first attempt fails, it is retried.
   *
   * @param endpointOrUrl - the id of an endpoint, which must belong to the option `tenant` if that is set; or a URL, for which
   *   the publisher's own key signs
   * @returns after the first attempt, or at once if the receiver has asked to wait
   * @throws {@link WebhookDeliveryError}, {@link WebhookStoreError} as {@link publish}, and
   *   `unknown_endpoint`; also `store_unavailable` if the delivery was erased before its first attempt
   * @throws {@link WebhookDestinationBlockedError} for a URL that the egress guard refuses
   */
  async send<Event extends WebhookEventName>(
    endpointOrUrl: string | URL,
    event: Event,
    ...args: EventArguments<Event, PublishOptions>
  ): Promise<SendResult> {
    return named('send', event, async () => {
      this.refuseWhenShuttingDown();
      const { data, options } = readArguments(args, PUBLISH_OPTIONS);
      if (options.tx !== undefined && options.tx !== false) {
        throw new WebhookDeliveryError(
          'unsupported_option',
          'send cannot join a transaction, because it waits for an attempt, which must follow the commit; use publish.',
        );
      }
      if (options.orderingKey !== undefined) {
        throw new WebhookDeliveryError(
          'unsupported_option',
          'send cannot wait for the earlier events of an orderingKey; use publish.',
        );
      }
      const { draft, endpoint, delivery } = await this.address(endpointOrUrl, event, data, options);
      const addressed = { draft, deliveries: [{ delivery, endpoint }], options };
      const wait = options.delay + endpoint.retry.waitBefore(1);
      return this.firstAttempts.make(delivery, wait, options.signal, async () => {
        const [earlier] = await this.enqueueTraced([addressed]);
        return earlier!;
      });
    });
  }

  /**
   * Signs an event for one endpoint or URL and leaves the sending to the caller.
   *
   * @throws {@link WebhookDeliveryError} `invalid_data`, `invalid_option`, `unknown_event`, `unknown_endpoint`
   * @throws {@link WebhookSigningError} `signing_failed`, `no_signing_key`; there is no timeout for the signer
   * @throws {@link WebhookDestinationBlockedError} for a URL that the egress guard refuses
   */
  async sign<Event extends WebhookEventName>(
    endpointOrUrl: string | URL,
    event: Event,
    ...args: EventArguments<Event, SignOptions>
  ): Promise<SignedWebhookRequest> {
    return named('sign', event, async () => {
      const { data, options } = readArguments(args, SIGN_OPTIONS);
      const { endpoint, delivery } = await this.address(endpointOrUrl, event, data, options);
      const {
        receipt,
        profile: _profile,
        ...request
      } = await this.sender.composer.compose(delivery, endpoint);
      return { ...request, ...(receipt && { receipt: receipt() }), id: delivery.eventId };
    });
  }

  /** @hidden */
  async onApplicationBootstrap(): Promise<void> {
    if (!this.queue.durable) {
      this.logger.log(
        'Pending deliveries are in the memory of this process: a crash loses them. Use a durable queue to keep them.',
      );
    }
    if (this.sender.usesForeignAdapter) {
      this.logger.warn(
        'HttpService has its own axios adapter: the egress guard checks URLs, but cannot check the addresses that the adapter connects to. Remove the adapter if you did not intend this.',
      );
    }
    await this.deliverer.start();
  }

  /**
   * Drains in this hook because the HTTP server still answers; later hooks may wait for idle connections longer
   * than an orchestrator allows.
   *
   * @hidden
   */
  async beforeApplicationShutdown(): Promise<void> {
    this.shuttingDown = true;
    const { clock, shutdownTimeout } = this.options;
    const deadline = clock.now() + shutdownTimeout;
    const abort = (): void => {
      this.firstAttempts.failAll(shuttingDown);
      this.sender.close();
    };
    const left = await stopQueue(this.queue, clock, shutdownTimeout, abort);
    await this.deliverer.settle(deadline);
    abort();
    if (left > 0) {
      this.logger.warn(
        `${left} ${left === 1 ? 'delivery was' : 'deliveries were'} not finished at shutdown; ${this.queue.durable ? 'the queue keeps them' : 'they are lost'}.`,
      );
    }
  }

  /** Checks the events against their definitions, addresses them, and records all of them or none. */
  private async record(
    read: readonly ReadEvent[],
    { tx, isCurrent }: ReturnType<PublishTransaction['choose']>,
  ): Promise<readonly PublishResult[]> {
    for (const one of read) {
      await inEvent(one, () => requireDefined(one.draft, this.options.events));
    }
    try {
      const addressed: AddressedEvent[] = [];
      for (const one of read) addressed.push(await this.addressed(one, tx));
      if (addressed.length === 0) return [];
      const earlier = await this.enqueueTraced(addressed, tx);
      return addressed.map((one, index) => resultOf(one, earlier[index]!));
    } catch (error) {
      // The caller did not pass the transaction, and may not know of it.
      throw isCurrent && isWebhookError(error, 'unsupported_option') ? cannotJoin(error) : error;
    }
  }

  /**
   * Passes the deliveries of all events to the queue, all or none.
   *
   * @param tx - the transaction to record in; `undefined` for none
   * @returns for each event what was recorded of its deliveries before
   * @throws `WebhookDeliveryError` `invalid_option`, `id_conflict`, `aborted`, and what the queue throws
   */
  private async enqueueTraced(
    events: readonly AddressedEvent[],
    tx?: unknown,
  ): Promise<readonly EarlierRecords[]> {
    const operations = events.map(({ draft: { event, eventId, tenant } }) =>
      publishing.begin(() => ({ event, eventId, tenant })),
    );
    const traces = operations.map((operation) => operation?.trace);
    try {
      const recorded = await this.enqueue(events, traces, tx);
      for (const [index, earlier] of recorded.entries()) {
        const duplicate = areDuplicates(earlier);
        operations[index]?.end({ deliveries: earlier.length, duplicate });
      }
      return recorded;
    } catch (error) {
      const outcome = { deliveries: 0, duplicate: false, error: errorType(error) };
      for (const operation of operations) operation?.end(outcome);
      throw error;
    }
  }

  private async enqueue(
    events: readonly AddressedEvent[],
    traces: readonly OutgoingDelivery['trace'][],
    tx: unknown,
  ): Promise<readonly EarlierRecords[]> {
    for (const event of events) await inEvent(event, () => this.requireThatHeadsCanCarry(event));
    await this.deliverer.start();
    for (const { options } of events) {
      if (options.signal?.aborted === true) throw aborted(options.signal);
    }
    const now = this.options.clock.now();
    const items = events.flatMap((event, index) => itemsOf(event, traces[index], now));
    if (items.length === 0) return events.map(() => []);
    const all = events.flatMap((event) =>
      event.deliveries.map(({ delivery }) => ({ event, delivery })),
    );
    const first = new Map(all.toReversed().map(({ delivery }) => [delivery.id, delivery]));
    const firsts = all.map(({ delivery }) => first.get(delivery.id));
    // Two events of this call have one id.
    requireSameContents(all, firsts);
    const check = (records: EarlierRecords): void =>
      requireSameContents(all, deliveriesOf(records));
    // Another call may have had one of the ids: nothing of this one may be recorded then.
    const mayConflict = items.length > 1 && events.some(({ options }) => options.id !== undefined);
    const records = await this.queue.enqueue(items, {
      ...(tx !== undefined && { tx }),
      ...(mayConflict && { check }),
    });
    check(records);
    let end = 0;
    return events.map(({ deliveries }) => records.slice(end, (end += deliveries.length)));
  }

  private async requireThatHeadsCanCarry({ deliveries }: AddressedEvent): Promise<void> {
    for (const { delivery, endpoint } of deliveries) {
      if ((delivery.method ?? endpoint.method) === 'HEAD') {
        await this.sender.composer.requireThatHeadCanCarry(delivery, endpoint);
      }
    }
  }

  /** Addresses an event to the endpoints that get it. */
  private async addressed(read: ReadEvent, tx: unknown): Promise<AddressedEvent> {
    const { draft } = read;
    // In the transaction: with a second connection, concurrent transactions could exhaust the pool and wait for each other.
    const endpoints = await this.endpoints.subscribed(draft, tx);
    const deliveries = await inEvent(read, () =>
      endpoints.map((endpoint) => ({ delivery: deliveryTo(endpoint, draft), endpoint })),
    );
    if (deliveries.length === 0) {
      this.logger.debug(
        `No enabled endpoint subscribes to "${draft.event}" with a filter that it matches.`,
      );
    }
    return { deliveries, ...read };
  }

  /** Drafts an event for one endpoint or URL. */
  private async address(
    endpointOrUrl: string | URL,
    event: string,
    data: unknown,
    options: DraftOptions,
  ): Promise<{ draft: EventDraft; endpoint: Endpoint; delivery: OutgoingDelivery }> {
    // Before the first await: the caller may change the data later.
    const draft = draftEvent(event, data, options, this.options.clock.now());
    await requireDefined(draft, this.options.events);
    const endpoint = await this.find(endpointOrUrl, options.tenant);
    return { draft, endpoint, delivery: deliveryTo(endpoint, draft) };
  }

  private async find(endpointOrUrl: string | URL, tenant?: string): Promise<Endpoint> {
    if (!(endpointOrUrl instanceof URL)) {
      const endpoint = await this.endpoints.find(endpointOrUrl);
      // For another tenant, the endpoint does not exist.
      const isTheirs = tenant === undefined || endpoint?.tenant === tenant;
      if (endpoint !== undefined && isTheirs) return endpoint;
      if (!looksLikeUrl(endpointOrUrl)) {
        throw new WebhookDeliveryError(
          'unknown_endpoint',
          'No endpoint has this id, or it belongs to another tenant; check the id and the tenant, or pass a URL.',
        );
      }
    }
    return this.endpoints.ofUrl(this.options.egress.checkUrl(endpointOrUrl).href);
  }

  private refuseWhenShuttingDown(): void {
    if (this.shuttingDown) throw shuttingDown();
  }
}

function resultOf({ draft, deliveries }: AddressedEvent, earlier: EarlierRecords): PublishResult {
  return {
    id: draft.eventId,
    event: draft.event,
    deliveries: deliveries.map(({ delivery: { id, endpointId } }) => ({
      id,
      endpointId: endpointId!,
    })),
    ...(areDuplicates(earlier) && { duplicate: true }),
  };
}

/** Whether every delivery of an event was recorded before. */
function areDuplicates(earlier: EarlierRecords): boolean {
  return earlier.length > 0 && !earlier.includes(undefined);
}

function itemsOf(
  { deliveries, options }: AddressedEvent,
  trace: OutgoingDelivery['trace'],
  now: number,
): EnqueuedDelivery<OutgoingDelivery>[] {
  return deliveries.map(({ delivery, endpoint }) => {
    const notBefore = now + options.delay + endpoint.retry.waitBefore(1);
    const limits = limitsOf(endpoint);
    return {
      delivery: trace === undefined ? delivery : { ...delivery, trace },
      notBefore,
      ...(isLimited(limits) && { limits }),
    };
  });
}

function deliveriesOf(records: EarlierRecords): (WebhookDelivery | undefined)[] {
  return records.map((record) => record?.delivery);
}

/**
 * @param known - for each of the deliveries another one with its id, or `undefined`
 * @throws `WebhookDeliveryError` `id_conflict` if it is another event, or has other data
 */
function requireSameContents(
  all: readonly { readonly event: ReadEvent; readonly delivery: OutgoingDelivery }[],
  known: readonly (Pick<OutgoingDelivery, 'contentDigest'> | undefined)[],
): void {
  for (const [index, { event, delivery }] of all.entries()) {
    try {
      requireSameContent(delivery, known[index] ?? delivery);
    } catch (error) {
      throw prefixed(error, event.position);
    }
  }
}

/** Names the call in the message of its error: an unhandled rejection shows nothing else. */
async function named<T>(call: string, event: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    // What is not an event name may be anything, so it is not repeated.
    if (!isWebhookError(error) || !isEventName(event, 'swt-draft-00')) throw error;
    // Calls that a queue records in one batch may share its error.
    const isNamed = error.message.includes(`"${event}"`);
    throw isNamed ? error : prefixed(error, `${call} of "${event}"`);
  }
}

function shuttingDown(): WebhookDeliveryError {
  return new WebhookDeliveryError('shutting_down', 'The application is shutting down.');
}
