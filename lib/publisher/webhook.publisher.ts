import {
  Logger,
  type BeforeApplicationShutdown,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { constraintsOf, type WebhookEventCatalog } from '../events/event-catalog.js';
import { WebhookDeliveryError, isWebhookError } from '../errors/webhook.error.js';
import { isEventName } from '../token/event-name.js';
import type { WebhookEventName } from '../token/webhook-event-map.js';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import { cannotJoin, type CurrentTransaction } from './current-transaction.js';
import type { Endpoint } from '../sending/endpoint.js';
import { looksLikeUrl } from '../endpoints/endpoint-store.js';
import type { EndpointRegistry } from '../endpoints/endpoint.registry.js';
import {
  deliveryTo,
  draftEvent,
  type EventDraft,
  type SignOptions,
  withContentDigest,
} from '../sending/event-draft.js';
import { aborted, areDuplicates, DeliveryRecorder } from './delivery-recorder.js';
import { FirstAttempts } from './first-attempts.js';
import {
  type EventArguments,
  type PublishOptions,
  type PublishResult,
  type SendResult,
  type SignedWebhookRequest,
  readArguments,
  PUBLISH_OPTIONS,
  SIGN_OPTIONS,
} from './publish-options.js';
import type { ResolvedPublisherOptions } from './publisher-options.resolver.js';
import type { WebhookDeliverer } from '../deliveries/webhook.deliverer.js';
import type { WebhookSender } from '../sending/webhook.sender.js';

/** Sends events as signed webhooks. */
export class WebhookPublisher implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger('WebhookPublisher');
  private readonly recorder: DeliveryRecorder;
  private readonly firstAttempts: FirstAttempts;
  private shuttingDown = false;

  /** @internal Its parameters need the types of axios, which an application that only receives does not have. */
  constructor(
    private readonly options: ResolvedPublisherOptions,
    private readonly endpoints: EndpointRegistry,
    private readonly queue: WebhookQueue,
    private readonly deliverer: WebhookDeliverer,
    private readonly sender: WebhookSender,
    private readonly currentTransaction: CurrentTransaction,
  ) {
    this.recorder = new DeliveryRecorder(options, queue, deliverer, sender);
    this.firstAttempts = new FirstAttempts(this.recorder, queue, options.clock);
    deliverer.onRun((run) => this.firstAttempts.report(run));
  }

  /**
   * Publishes an event to every endpoint that subscribes to it.
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
    try {
      return await this.publishEvent(event, args);
    } catch (error) {
      throw named('publish', event, error);
    }
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
    try {
      return await this.sendEvent(endpointOrUrl, event, args);
    } catch (error) {
      throw named('send', event, error);
    }
  }

  /**
   * Signs an event for one destination and leaves the sending to the caller.
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
    try {
      return await this.signEvent(endpointOrUrl, event, args);
    } catch (error) {
      throw named('sign', event, error);
    }
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
    const deadline = this.options.clock.now() + this.options.shutdownTimeout;
    const left = await this.queue.stop(deadline);
    this.sender.close();
    this.firstAttempts.failAll(() => shuttingDown());
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
    const draft = withContentDigest(this.draft(event, data, options));
    const tx = current ?? this.recorder.joinable(options.tx);
    if (this.options.events !== undefined) await requireDefined(draft, this.options.events);
    try {
      // In the transaction: with a second connection, concurrent transactions could exhaust the pool and wait for each other.
      const endpoints = await this.endpoints.subscribed(event, options.tenant, tx);
      const deliveries = endpoints.map((endpoint) => deliveryTo(endpoint, draft));
      if (deliveries.length === 0) this.logger.debug(`No endpoint subscribes to "${event}".`);
      const known = await this.recorder.record(draft, deliveries, endpoints, options, tx);
      return {
        id: draft.eventId,
        event,
        deliveries: deliveries.map(({ id, endpointId }) => ({ id, endpointId: endpointId! })),
        ...(areDuplicates(known) && { duplicate: true }),
      };
    } catch (error) {
      const isOfCurrent = current !== undefined && isWebhookError(error, 'unsupported_option');
      throw isOfCurrent ? cannotJoin(error) : error;
    }
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
        'send cannot join a transaction, because it waits for an attempt, which must follow the commit; use publish.',
      );
    }
    // Before the first await: the caller may change the data later.
    const draft = withContentDigest(this.draft(event, data, options));
    if (this.options.events !== undefined) await requireDefined(draft, this.options.events);
    const endpoint = await this.find(endpointOrUrl, options.tenant);
    const result = this.firstAttempts.make(deliveryTo(endpoint, draft), endpoint, options);
    return options.signal === undefined ? result : unlessAborted(result, options.signal);
  }

  private async signEvent(
    endpointOrUrl: string | URL,
    event: string,
    args: readonly [data?: unknown, options?: SignOptions],
  ): Promise<SignedWebhookRequest> {
    const { data, options } = readArguments(args, SIGN_OPTIONS);
    const draft = this.draft(event, data, options);
    if (this.options.events !== undefined) await requireDefined(draft, this.options.events);
    const endpoint = await this.find(endpointOrUrl, options.tenant);
    const request = await this.sender.composer.compose(deliveryTo(endpoint, draft), endpoint);
    return { ...request, receipt: request.receipt(), id: draft.eventId };
  }

  private draft(event: string, data: unknown, options: SignOptions): EventDraft {
    return draftEvent(event, data, options, this.options.clock.now());
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

/**
 * Checks an event as its receiver would: the JSON, and not the value that the caller passed.
 *
 * @throws {@link WebhookDeliveryError} `unknown_event`, `invalid_data`
 */
async function requireDefined(
  { event, payload: { kind, bytes } }: EventDraft,
  events: WebhookEventCatalog,
): Promise<void> {
  if (events.find(event) === undefined) {
    throw new WebhookDeliveryError('unknown_event', events.unknown(event));
  }
  if (!events.checks(event)) return;
  const isJson = kind === 'json' && bytes !== undefined;
  const data: unknown = isJson ? JSON.parse(new TextDecoder().decode(bytes)) : bytes;
  const issues = await events.check(event, data);
  if (issues.length === 0) return;
  throw new WebhookDeliveryError(
    'invalid_data',
    `The data is not valid data of "${event}": ${constraintsOf(issues)}. Correct the data, or the definition.`,
  );
}

/** Names the call in the message of its error: an unhandled rejection shows nothing else. */
function named(call: string, event: string, error: unknown): unknown {
  // What is not an event name may be anything, so it is not repeated.
  if (!isWebhookError(error) || !isEventName(event, 'swt-draft-00')) return error;
  const { message, stack } = error;
  // Calls that share one attempt share its error.
  if (message.includes(`"${event}"`)) return error;
  error.message = `${call} of "${event}": ${message}`;
  if (stack !== undefined) error.stack = stack.replace(message, () => error.message);
  return error;
}

function shuttingDown(): WebhookDeliveryError {
  return new WebhookDeliveryError('shutting_down', 'The application is shutting down.');
}

async function unlessAborted<T>(result: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const abort = (): void => reject(aborted(signal));
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    result.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}
