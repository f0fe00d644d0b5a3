import { publishing, type PublishingOperation } from '../deliveries/delivery.channels.js';
import type { WebhookDeliverer } from '../deliveries/webhook.deliverer.js';
import { errorType, WebhookDeliveryError } from '../errors/webhook.error.js';
import type { DeliveryRecord } from '../queue/delivery-record.js';
import type { OutgoingDelivery } from '../queue/webhook-delivery.interface.js';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import type { Endpoint } from '../sending/endpoint.js';
import type { WebhookSender } from '../sending/webhook.sender.js';
import type { ResolvedPublishOptions } from './publish-options.js';
import type { ResolvedPublisherOptions } from './publisher-options.resolver.js';

/** The event whose deliveries are recorded. */
type PublishedEvent = Pick<OutgoingDelivery, 'event' | 'eventId' | 'tenant'>;

/** For each delivery what was recorded before, or `undefined` if it is recorded now. */
type KnownDeliveries = readonly (DeliveryRecord | undefined)[];

/** Whether every delivery of an event was recorded before. */
export function areDuplicates(known: KnownDeliveries): boolean {
  return known.length > 0 && !known.includes(undefined);
}

type RecordOptions = Pick<ResolvedPublishOptions, 'id' | 'delay' | 'signal'>;

/** Records the deliveries of one event: all of them, or none. */
export class DeliveryRecorder {
  constructor(
    private readonly options: Pick<ResolvedPublisherOptions, 'clock' | 'retry'>,
    private readonly queue: WebhookQueue,
    private readonly deliverer: WebhookDeliverer,
    private readonly sender: WebhookSender,
  ) {}

  /**
   * Checks a transaction that the caller passed.
   *
   * @returns `undefined` if there is none to join
   * @throws {@link WebhookDeliveryError} `unsupported_option`
   */
  joinable(tx: unknown): unknown {
    if (tx === undefined || tx === false) return undefined;
    if (this.queue.transactional) return tx;
    throw new WebhookDeliveryError(
      'unsupported_option',
      'The queue cannot join a transaction; leave tx out, or use a transactional queue.',
    );
  }

  /**
   * Records deliveries as one observed operation, and stores its trace with each of them.
   *
   * @param targets - of each delivery, in their order
   * @param tx - the transaction to record in; `undefined` for none
   * @throws {@link WebhookDeliveryError} `invalid_option`, `id_conflict`, `aborted`, and what the queue throws
   */
  async record(
    { event, eventId, tenant }: PublishedEvent,
    deliveries: readonly OutgoingDelivery[],
    targets: readonly Endpoint[],
    options: RecordOptions,
    tx?: unknown,
  ): Promise<KnownDeliveries> {
    if (!publishing.isObserved) return this.recordAll(deliveries, targets, options, tx);
    const recordTraced = (operation: PublishingOperation | undefined): Promise<KnownDeliveries> => {
      const trace = operation?.trace;
      const traced =
        trace === undefined ? deliveries : deliveries.map((one) => ({ ...one, trace }));
      return this.recordAll(traced, targets, options, tx);
    };
    return publishing.observe(() => ({ event, eventId, tenant }), recordTraced, {
      of: (known) => ({ deliveries: known.length, duplicate: areDuplicates(known) }),
      failed: (error) => ({ deliveries: 0, duplicate: false, error: errorType(error) }),
    });
  }

  private async recordAll(
    deliveries: readonly OutgoingDelivery[],
    targets: readonly Endpoint[],
    { id, delay, signal }: RecordOptions,
    tx: unknown,
  ): Promise<KnownDeliveries> {
    const first = delay + this.options.retry.waitBefore(1);
    for (let index = 0; index < deliveries.length; index++) {
      const [delivery, target] = [deliveries[index]!, targets[index]!];
      if ((delivery.method ?? target.method) === 'HEAD') {
        await this.sender.composer.requireThatHeadCanCarry(delivery, target);
      }
    }
    await this.deliverer.start();
    if (signal?.aborted === true) throw aborted(signal);
    if (deliveries.length === 0) return [];
    const notBefore = this.options.clock.now() + first;
    const items = deliveries.map((delivery) => ({ delivery, notBefore }));
    if (id !== undefined && tx === undefined) await this.requireNoConflict(deliveries);
    const known = await this.queue.enqueue(items, tx === undefined ? undefined : { tx });
    requireSameContents(deliveries, known);
    return known;
  }

  /**
   * Asks the queue before it records any of several deliveries, so that a conflict leaves nothing recorded. In a transaction the
   * rollback does that, and asking could take a second connection while the transaction holds the first.
   */
  private async requireNoConflict(deliveries: readonly OutgoingDelivery[]): Promise<void> {
    if (deliveries.length < 2) return;
    requireSameContents(deliveries, await this.queue.find(deliveries.map(({ id }) => id)));
  }
}

function requireSameContents(
  deliveries: readonly OutgoingDelivery[],
  known: KnownDeliveries,
): void {
  for (const [index, record] of known.entries()) {
    if (record !== undefined) requireSameContent(deliveries[index]!, record.delivery);
  }
}

/** @throws {@link WebhookDeliveryError} `id_conflict` */
export function requireSameContent(
  { contentDigest }: OutgoingDelivery,
  known: { readonly contentDigest?: string | undefined },
): void {
  if (known.contentDigest === undefined || known.contentDigest === contentDigest) return;
  throw new WebhookDeliveryError(
    'id_conflict',
    'The id was used before, for another event or for other data; use a new id for a new event.',
  );
}

export function aborted(signal: AbortSignal): WebhookDeliveryError {
  return new WebhookDeliveryError('aborted', 'The signal was aborted.', { cause: signal.reason });
}
