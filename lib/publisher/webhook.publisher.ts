import { AsyncResource } from 'node:async_hooks';
import {
  Logger,
  type BeforeApplicationShutdown,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { WebhookDeliveryError, isWebhookError } from '../errors/webhook.error.js';
import { isEventName } from '../token/event-name.js';
import type { WebhookEventName } from '../token/webhook-event-map.js';
import type {
  DeliveryReceipt,
  EnqueuedDelivery,
  KnownDelivery,
  WebhookQueue,
} from '../queue/webhook-queue.js';
import { cannotJoin, type CurrentTransaction } from './current-transaction.js';
import type { DeliveryLogWriter } from '../deliveries/delivery-log.writer.js';
import type { DeliveryTarget } from '../sending/delivery-target.js';
import { looksLikeUrl } from '../endpoints/endpoint-store.js';
import type { EndpointRegistry } from '../endpoints/endpoint.registry.js';
import { deliveryTo, draftEvent, type SignOptions } from '../sending/event-draft.js';
import {
  FirstAttempts,
  SharedAttempts,
  resultOfReceipt,
  resultOfReport,
} from './first-attempts.js';
import {
  type EventArguments,
  type PublishOptions,
  type PublishResult,
  type SendResult,
  type SignedWebhookRequest,
  readArguments,
  readDelay,
  PUBLISH_OPTIONS,
  SIGN_OPTIONS,
} from './publish-options.js';
import type { ResolvedPublisherOptions } from './publisher-options.resolver.js';
import type { WebhookDelivery } from '../queue/webhook-delivery.interface.js';
import type { WebhookDeliverer } from '../deliveries/webhook.deliverer.js';
import type { WebhookSender } from '../sending/webhook.sender.js';

/** Sends events as signed webhooks. */
export class WebhookPublisher implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger('WebhookPublisher');
  private readonly firstAttempts = new FirstAttempts();
  private readonly sharedAttempts: SharedAttempts;
  /** The async context of start-up, so that reactions to a delivery do not join the transaction of the call that published it. */
  private readonly background = new AsyncResource('WebhookPublisher');
  private consuming: Promise<void> | undefined;
  private shuttingDown = false;

  /** @internal Its parameters need the types of axios, which an application that only receives does not have. */
  constructor(
    private readonly options: ResolvedPublisherOptions,
    private readonly endpoints: EndpointRegistry,
    private readonly queue: WebhookQueue,
    private readonly deliverer: WebhookDeliverer,
    private readonly sender: WebhookSender,
    private readonly currentTransaction: CurrentTransaction,
    private readonly logWriter: DeliveryLogWriter,
  ) {
    this.sharedAttempts = new SharedAttempts(queue, this.firstAttempts, options.clock);
    deliverer.onReport((report) =>
      this.firstAttempts.settle(report.delivery.id, () => resultOfReport(report)),
    );
  }

  /**
   * Publishes an event to every endpoint that subscribes to it.
   *
   * Within a transaction of `@nestjs-cls/transactional`, it is recorded in that transaction if the queue is transactional.
   *
   * @param event - its name, `<entity>.<action>`
   * @param args - the data: a JSON value, or a Buffer or Uint8Array together with the option `contentType`; then the options
   * @returns once every delivery is recorded, before it is delivered
   * @throws {@link WebhookDeliveryError} with nothing recorded: `invalid_data`, `invalid_option`,
   *   `unsupported_option`, `id_conflict`, `aborted`, `shutting_down`
   * @throws {@link WebhookStoreError} `store_full`, `store_unavailable`, with nothing recorded
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
    return namingEvent('publish', event, () => this.publishEvent(event, args));
  }

  /**
   * Sends an event to one destination, also to an endpoint that has not subscribed to it.
   *
   * The delivery is queued like any other: if its first attempt fails, it is retried.
   *
   * @param endpointOrUrl - the id of an endpoint, which must belong to the option `tenant` if that is set; or a URL, for which
   *   the publisher's own key signs
   * @returns after the first attempt, or at once if the destination has asked to wait
   * @throws {@link WebhookDeliveryError}, {@link WebhookStoreError} as {@link publish}, and
   *   `unknown_endpoint`
   * @throws {@link WebhookDestinationBlockedError} for a URL that the egress guard refuses
   */
  async send<Event extends WebhookEventName>(
    endpointOrUrl: string | URL,
    event: Event,
    ...args: EventArguments<Event, PublishOptions>
  ): Promise<SendResult> {
    return namingEvent('send', event, () => this.sendEvent(endpointOrUrl, event, args));
  }

  /**
   * Signs an event for one destination and leaves the sending to the caller.
   *
   * @throws {@link WebhookDeliveryError} `invalid_data`, `invalid_option`, `unknown_endpoint`
   * @throws {@link WebhookSigningError} `signing_failed`, `no_signing_key`; there is no timeout for the signer
   * @throws {@link WebhookDestinationBlockedError} for a URL that the egress guard refuses
   */
  async sign<Event extends WebhookEventName>(
    endpointOrUrl: string | URL,
    event: Event,
    ...args: EventArguments<Event, SignOptions>
  ): Promise<SignedWebhookRequest> {
    return namingEvent('sign', event, () => this.signEvent(endpointOrUrl, event, args));
  }

  /** @hidden */
  async onApplicationBootstrap(): Promise<void> {
    if (!this.queue.durable) {
      this.logger.log(
        'Pending deliveries are in the memory of this process: a crash loses them. Use a durable queue to keep them.',
      );
    }
    if (this.queue.shared && this.options.deliveryLog?.durable === false) {
      this.logger.log(
        'The delivery log is in the memory of this process, but the queue is shared: attempts that other processes make are not logged here. Use a durable log to see all.',
      );
    }
    if (this.sender.usesForeignAdapter) {
      this.logger.warn(
        'HttpService has its own axios adapter: the egress guard checks URLs, but cannot check the addresses that the adapter connects to.',
      );
    }
    await this.consume();
  }

  /**
   * Drains in this hook because the HTTP server still answers; later hooks may wait for idle connections longer
   * than an orchestrator allows.
   *
   * @hidden
   */
  async beforeApplicationShutdown(): Promise<void> {
    this.shuttingDown = true;
    const deadline = this.options.clock.now() + this.options.shutdownTimeout;
    const left = await this.queue.stop(deadline);
    this.sender.close();
    this.firstAttempts.failAll(() => shuttingDown());
    const lost = await this.logWriter.close(deadline);
    if (lost > 0) {
      this.logger.warn(`The delivery log did not accept ${lost} changes before the shutdown.`);
    }
    if (left > 0) {
      this.logger.warn(
        `${left} deliveries were not finished at shutdown; ${this.queue.durable ? 'the queue keeps them' : 'they are lost'}.`,
      );
    }
  }

  private async publishEvent(
    event: string,
    args: readonly [data?: unknown, options?: PublishOptions],
  ): Promise<PublishResult> {
    this.refuseWhenShuttingDown();
    const { data, options } = readArguments(args, PUBLISH_OPTIONS);
    // Before the first await: a caller that does not await the result may end its transaction meanwhile.
    const current = options.tx === undefined ? this.currentTransaction.find() : undefined;
    const draft = draftEvent(event, data, options, this.options.clock.now());
    const targets = await this.subscribed(event, options, current);
    const deliveries = targets.map((target) => deliveryTo(target, draft));
    if (deliveries.length === 0) this.logger.debug(`No endpoint subscribes to "${event}".`);
    const receipts = await this.recordIn(current, deliveries, targets, options);
    const isDuplicate = receipts.length > 0 && receipts.every(isKnown);
    return {
      id: draft.eventId,
      event,
      deliveries: deliveries.map(({ id, endpointId }) => ({ id, endpointId: endpointId! })),
      ...(isDuplicate && { duplicate: true }),
    };
  }

  private async sendEvent(
    endpointOrUrl: string | URL,
    event: string,
    args: readonly [data?: unknown, options?: PublishOptions],
  ): Promise<SendResult> {
    this.refuseWhenShuttingDown();
    const { data, options } = readArguments(args, PUBLISH_OPTIONS);
    if (options.tx !== undefined && options.tx !== false) {
      throw new WebhookDeliveryError(
        'unsupported_option',
        'send waits for an attempt, which can only be made after the commit of tx; use publish.',
      );
    }
    // Before the first await: the caller may change the data later.
    const draft = draftEvent(event, data, options, this.options.clock.now());
    const target = await this.targetOf(endpointOrUrl, options.tenant);
    const { tenant = options.tenant } = target;
    const delivery = deliveryTo(target, { ...draft, ...(tenant !== undefined && { tenant }) });
    return unlessAborted(this.sendOrJoin(delivery, target, options), options.signal);
  }

  private async signEvent(
    endpointOrUrl: string | URL,
    event: string,
    args: readonly [data?: unknown, options?: SignOptions],
  ): Promise<SignedWebhookRequest> {
    const { data, options } = readArguments(args, SIGN_OPTIONS);
    const draft = draftEvent(event, data, options, this.options.clock.now());
    const target = await this.targetOf(endpointOrUrl, options.tenant);
    const request = await this.sender.compose(deliveryTo(target, draft), target);
    return { ...request, receipt: request.receipt(), id: draft.eventId };
  }

  /** Joins the first attempt of a concurrent call with the same id; starts its own if that call is aborted. */
  private async sendOrJoin(
    delivery: WebhookDelivery,
    target: DeliveryTarget,
    options: PublishOptions,
  ): Promise<SendResult> {
    const joined = this.firstAttempts.find(delivery.id);
    if (joined === undefined) return this.sendOnce(delivery, target, options);
    requireSameContent(delivery, joined);
    try {
      return { ...(await joined.result), duplicate: true };
    } catch (error) {
      if (!isWebhookError(error, 'aborted')) throw error;
      return this.sendOrJoin(delivery, target, options);
    }
  }

  private async sendOnce(
    delivery: WebhookDelivery,
    target: DeliveryTarget,
    options: PublishOptions,
  ): Promise<SendResult> {
    const result = this.firstAttempts.expect(delivery);
    let isDuplicate = false;
    try {
      const [receipt] = await this.record([delivery], [target], options);
      isDuplicate = receipt !== undefined && isKnown(receipt);
      const known = receipt && resultOfReceipt(delivery.eventId, receipt);
      if (known !== undefined) this.firstAttempts.settle(delivery.id, () => known);
      this.sharedAttempts.watch(delivery, this.options.clock.now() + readDelay(options.delay));
    } catch (error) {
      this.firstAttempts.fail(delivery.id, error as Error);
    }
    return isDuplicate ? { ...(await result), duplicate: true } : result;
  }

  /**
   * Looks the endpoints up in the transaction that records the event: with a second connection, concurrent transactions
   * could exhaust the pool and wait for each other.
   *
   * @param current - the transaction of `@nestjs-cls/transactional`, if any
   */
  private async subscribed(
    event: string,
    options: PublishOptions,
    current: unknown,
  ): Promise<readonly DeliveryTarget[]> {
    const tx = this.joinable(options.tx) ?? current;
    try {
      return await this.endpoints.subscribed(event, options.tenant, tx);
    } catch (error) {
      if (current !== undefined && isWebhookError(error, 'unsupported_option'))
        throw cannotJoin(error);
      throw error;
    }
  }

  /** @param current - the transaction of `@nestjs-cls/transactional`, if any */
  private async recordIn(
    current: unknown,
    deliveries: readonly WebhookDelivery[],
    targets: readonly DeliveryTarget[],
    options: PublishOptions,
  ): ReturnType<WebhookQueue['enqueue']> {
    if (current === undefined) return this.record(deliveries, targets, options);
    try {
      return await this.record(deliveries, targets, { ...options, tx: current });
    } catch (error) {
      throw isWebhookError(error, 'unsupported_option') ? cannotJoin(error) : error;
    }
  }

  private async record(
    deliveries: readonly WebhookDelivery[],
    targets: readonly DeliveryTarget[],
    { delay, signal, ...options }: PublishOptions,
  ): ReturnType<WebhookQueue['enqueue']> {
    const tx = this.joinable(options.tx);
    const first = readDelay(delay) + this.options.retry.waitBefore(1);
    await this.requireThatHeadCanCarry(deliveries, targets);
    await this.consume();
    if (signal?.aborted === true) throw aborted(signal);
    if (deliveries.length === 0) return [];
    const notBefore = this.options.clock.now() + first;
    const items: EnqueuedDelivery[] = deliveries.map((delivery) => ({ delivery, notBefore }));
    if (options.id !== undefined && tx === undefined) await this.requireNoConflict(deliveries);
    const receipts = await this.queue.enqueue(items, tx === undefined ? undefined : { tx });
    const fresh = items.filter((_, index) => receipts[index]?.status === 'recorded');
    await this.logWriter.enqueued(fresh, tx);
    requireSameContents(deliveries, receipts);
    return receipts;
  }

  /**
   * Asks the queue before it records any of several deliveries, so that a conflict leaves nothing recorded. In a transaction the
   * rollback does that, and asking could take a second connection while the transaction holds the first.
   */
  private async requireNoConflict(deliveries: readonly WebhookDelivery[]): Promise<void> {
    if (deliveries.length < 2) return;
    requireSameContents(deliveries, await this.queue.find(deliveries.map(({ id }) => id)));
  }

  /** @throws {@link WebhookDeliveryError} `unsupported_option` */
  private joinable(tx: unknown): unknown {
    if (tx === undefined || tx === false) return undefined;
    if (this.queue.transactional) return tx;
    throw new WebhookDeliveryError(
      'unsupported_option',
      'The queue cannot join a transaction; leave tx out, or use a transactional queue.',
    );
  }

  /** Rejects a call whose explicit HEAD can never carry the data, before anything is recorded. */
  private async requireThatHeadCanCarry(
    deliveries: readonly WebhookDelivery[],
    targets: readonly DeliveryTarget[],
  ): Promise<void> {
    for (const [index, delivery] of deliveries.entries()) {
      const target = targets[index]!;
      if ((delivery.method ?? target.method) === 'HEAD')
        await this.sender.requireThatHeadCanCarry(delivery, target);
    }
  }

  private async targetOf(endpointOrUrl: string | URL, tenant?: string): Promise<DeliveryTarget> {
    if (typeof endpointOrUrl === 'string') {
      const known = await this.endpoints.endpoint(endpointOrUrl);
      // For another tenant, the endpoint does not exist.
      const isTheirs = tenant === undefined || known?.tenant === tenant;
      if (known !== undefined && isTheirs) return known;
    }
    if (endpointOrUrl instanceof URL || looksLikeUrl(endpointOrUrl)) {
      return this.endpoints.url(this.options.egress.checkUrl(endpointOrUrl).href);
    }
    throw new WebhookDeliveryError(
      'unknown_endpoint',
      'The destination is neither the id of an endpoint nor a URL.',
    );
  }

  /** Starts to consume the queue, once; after a failure the next call tries again. */
  private consume(): Promise<void> {
    this.consuming ??= this.startConsuming().catch((error: unknown) => {
      this.consuming = undefined;
      throw error;
    });
    return this.consuming;
  }

  private async startConsuming(): Promise<void> {
    await this.queue.consume((delivery, attempt) =>
      this.background.runInAsyncScope(() => this.deliverer.deliver(delivery, attempt)),
    );
  }

  private refuseWhenShuttingDown(): void {
    if (this.shuttingDown) throw shuttingDown();
  }
}

function isKnown(receipt: DeliveryReceipt): receipt is KnownDelivery {
  return receipt.status !== 'recorded';
}

function requireSameContents(
  deliveries: readonly WebhookDelivery[],
  receipts: readonly (DeliveryReceipt | undefined)[],
): void {
  for (const [index, delivery] of deliveries.entries()) {
    const receipt = receipts[index];
    if (receipt !== undefined && isKnown(receipt)) requireSameContent(delivery, receipt);
  }
}

/** @throws {@link WebhookDeliveryError} `id_conflict` */
function requireSameContent(
  { contentDigest }: WebhookDelivery,
  known: { readonly contentDigest?: string | undefined },
): void {
  if (known.contentDigest === undefined || known.contentDigest === contentDigest) return;
  throw new WebhookDeliveryError(
    'id_conflict',
    'The id was used before, for another event or for other data; use a new id for a new event.',
  );
}

/** Names the call in the message of its error: an unhandled rejection shows nothing else. */
async function namingEvent<T>(call: string, event: string, run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    // What is not an event name may be anything, so it is not repeated.
    if (!isWebhookError(error) || !isEventName(event, 'swt-draft-00')) throw error;
    const { message, stack } = error;
    // Calls that share one attempt share its error.
    if (message.includes(`"${event}"`)) throw error;
    error.message = `${call} of "${event}": ${message}`;
    if (stack !== undefined) error.stack = stack.replace(message, () => error.message);
    throw error;
  }
}

function shuttingDown(): WebhookDeliveryError {
  return new WebhookDeliveryError('shutting_down', 'The application is shutting down.');
}

function aborted(signal: AbortSignal): WebhookDeliveryError {
  return new WebhookDeliveryError('aborted', 'The signal was aborted.', { cause: signal.reason });
}

async function unlessAborted<T>(result: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return result;
  return new Promise<T>((resolve, reject) => {
    const abort = (): void => reject(aborted(signal));
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    result.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}
