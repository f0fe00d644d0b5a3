import { observeRecording, type RecordedFacts } from '../deliveries/delivery.channels.js';
import type { DeliveryLogWriter } from '../deliveries/delivery-log.writer.js';
import type { WebhookDeliverer } from '../deliveries/webhook.deliverer.js';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import type { OutgoingDelivery } from '../queue/webhook-delivery.interface.js';
import type { DeliveryReceipt, KnownDelivery, WebhookQueue } from '../queue/webhook-queue.js';
import type { Endpoint } from '../sending/endpoint.js';
import type { WebhookSender } from '../sending/webhook.sender.js';
import { type PublishOptions, readDelay } from './publish-options.js';
import type { ResolvedPublisherOptions } from './publisher-options.resolver.js';

type RecordOptions = Pick<PublishOptions, 'id' | 'delay' | 'signal'>;

/** Records the deliveries of one event: all of them, or none. */
export class DeliveryRecorder {
  constructor(
    private readonly options: Pick<ResolvedPublisherOptions, 'clock' | 'retry'>,
    private readonly queue: WebhookQueue,
    private readonly deliverer: WebhookDeliverer,
    private readonly sender: WebhookSender,
    private readonly logWriter: DeliveryLogWriter,
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
   * @param targets - of each delivery, in their order
   * @param tx - the transaction to record in; `undefined` for none
   * @throws {@link WebhookDeliveryError} `invalid_option`, `id_conflict`, `aborted`, and what the queue throws
   */
  record(
    event: RecordedFacts,
    deliveries: readonly OutgoingDelivery[],
    targets: readonly Endpoint[],
    options: RecordOptions,
    tx?: unknown,
  ): Promise<readonly DeliveryReceipt[]> {
    return observeRecording(event, deliveries, (traced) =>
      this.recordAll(traced, targets, options, tx),
    );
  }

  private async recordAll(
    deliveries: readonly OutgoingDelivery[],
    targets: readonly Endpoint[],
    { id, delay, signal }: RecordOptions,
    tx: unknown,
  ): Promise<readonly DeliveryReceipt[]> {
    const first = readDelay(delay) + this.options.retry.waitBefore(1);
    for (let index = 0; index < deliveries.length; index++) {
      const [delivery, target] = [deliveries[index]!, targets[index]!];
      if ((delivery.method ?? target.method) === 'HEAD') {
        await this.sender.composer.requireThatHeadCanCarry(delivery, target);
      }
    }
    if (!this.deliverer.isStarted) await this.deliverer.start();
    if (signal?.aborted === true) throw aborted(signal);
    if (deliveries.length === 0) return [];
    const notBefore = this.options.clock.now() + first;
    const items = deliveries.map((delivery) => ({ delivery, notBefore }));
    if (id !== undefined && tx === undefined) await this.requireNoConflict(deliveries);
    const receipts = await this.queue.enqueue(items, tx === undefined ? undefined : { tx });
    const hasDuplicates = receipts.some(isKnown);
    const fresh = hasDuplicates ? items.filter((_, index) => !isKnown(receipts[index]!)) : items;
    const logged = this.logWriter.enqueued(fresh, tx);
    if (logged !== undefined) await logged;
    if (hasDuplicates) requireSameContents(deliveries, receipts);
    return receipts;
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

/** Whether the delivery was recorded before. */
export function isKnown(receipt: DeliveryReceipt): receipt is KnownDelivery {
  return receipt.status !== 'recorded';
}

function requireSameContents(
  deliveries: readonly OutgoingDelivery[],
  receipts: readonly (DeliveryReceipt | undefined)[],
): void {
  for (const [index, delivery] of deliveries.entries()) {
    const receipt = receipts[index];
    if (receipt !== undefined && isKnown(receipt)) requireSameContent(delivery, receipt);
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
