import type { WebhookClock } from '../clock/webhook-clock.js';
import { deliveryId, type OutgoingDelivery } from '../queue/webhook-delivery.js';
import type { ListedDelivery, WebhookQueue } from '../queue/webhook-queue.js';

/** The result of a call of `redeliver`. */
export interface RedeliverResult {
  readonly deliveries: readonly {
    readonly id: string;
    readonly redelivered: boolean;
    /** The id of the new delivery, if it is sent as another one; the old one keeps its outcome. */
    readonly as?: string;
    /** Why it was not sent again. */
    readonly reason?:
      /** It, or a later round of it, is being attempted or is due; with a filter, it is pending. */
      | 'pending'
      /** It was delivered in the meantime. */
      | 'delivered'
      /** The queue has dropped its payload, by `keepPayloads` or to save space, or the delivery itself. */
      | 'payload_dropped'
      /** A later round of it exists; only a filter that matches that round sends it again. */
      | 'superseded';
  }[];
  /** Whether the filter matches more than `limit`. */
  readonly more: boolean;
  /** With `more`: pass it as `after` to continue with older deliveries. Without it, one that died again is sent again. */
  readonly next?: string;
}

export type RedeliveredDelivery = RedeliverResult['deliveries'][number];

/** The delivery of a published event, without its payload. */
export type ListedOutgoing = ListedDelivery<Omit<OutgoingDelivery, 'payload'>>;

/** Whether an event was published: a queue may be shared with a receiver by mistake. */
export function isOutgoing(listed: ListedDelivery | undefined): listed is ListedOutgoing {
  return listed !== undefined && listed.delivery.received === undefined;
}

export interface RedeliveryOptions {
  readonly dryRun: boolean;
  /** Whether the caller passed this delivery's id, and not a filter that matches it. */
  readonly isNamed: boolean;
  /** Sends nothing if it is delivered. */
  readonly unlessDelivered?: boolean;
}

export class Redelivery {
  constructor(
    private readonly queue: WebhookQueue,
    private readonly clock: WebhookClock,
  ) {}

  async redeliver(
    listed: ListedOutgoing,
    options: RedeliveryOptions,
  ): Promise<RedeliveredDelivery> {
    const { id } = listed.delivery;
    // In any other state, `runAgain` makes it due in one step that a delivered one refuses.
    if (options.unlessDelivered === true && listed.status === 'delivered') {
      return { id, redelivered: false, reason: 'delivered' };
    }
    const last = await this.lastRound(listed);
    const reason = this.reasonAgainst(listed, last, options);
    if (reason !== undefined || options.dryRun) return { id, redelivered: false, reason };
    return last.status === 'delivered' ? this.newRound(last, id) : this.runAgain(last, id);
  }

  private reasonAgainst(
    listed: ListedOutgoing,
    last: ListedOutgoing,
    { dryRun, isNamed }: RedeliveryOptions,
  ): RedeliveredDelivery['reason'] {
    const { status, nextAttemptAt = 0, payloadDropped } = last;
    if (payloadDropped === true) return 'payload_dropped';
    if (status === 'pending') {
      // The queue decides by its own clock whether the delivery is waiting; a dry run can only estimate it.
      const mayWait = !dryRun || nextAttemptAt > this.clock.now();
      return isNamed && mayWait ? undefined : 'pending';
    }
    return isNamed || last === listed ? undefined : 'superseded';
  }

  /** Makes a dead delivery, or one that waits for its next attempt, due now under its id. */
  private async runAgain({ delivery }: ListedOutgoing, id: string): Promise<RedeliveredDelivery> {
    const [changed] = await this.queue.redeliver([delivery.id]);
    if (changed !== undefined) return redelivered(id, delivery.id);
    // Another call or the attempt itself was faster, or the queue needed the space.
    const [now] = await this.queue.find([delivery.id]);
    const isGone = now === undefined || now.status === 'dead';
    return { id, redelivered: false, reason: isGone ? 'payload_dropped' : now.status };
  }

  /** Sends the event as another delivery; the previous one keeps its outcome. */
  private async newRound(last: ListedOutgoing, id: string): Promise<RedeliveredDelivery> {
    const [record] = await this.queue.find([last.delivery.id]);
    if (record === undefined || record.payloadDropped === true) {
      return { id, redelivered: false, reason: 'payload_dropped' };
    }
    const createdAt = this.clock.now();
    const delivery = {
      ...last.delivery,
      ...nextRound(last.delivery),
      payload: record.delivery.payload,
      createdAt,
      occurredAt: last.delivery.occurredAt ?? last.delivery.createdAt,
    };
    const [known] = await this.queue.enqueue([{ delivery, notBefore: createdAt }]);
    // A concurrent call has recorded the same round.
    return known === undefined
      ? redelivered(id, delivery.id)
      : { id, redelivered: false, reason: 'pending' };
  }

  /** The last round that follows this delivery; the delivery itself if none does. Only a delivered one has another. */
  private async lastRound(listed: ListedOutgoing): Promise<ListedOutgoing> {
    for (let last = listed; ;) {
      if (last.status !== 'delivered') return last;
      const [next] = await this.queue.find([nextRound(last.delivery).id]);
      if (!isOutgoing(next)) return last;
      last = next;
    }
  }
}

function redelivered(id: string, as: string): RedeliveredDelivery {
  return as === id ? { id, redelivered: true } : { id, redelivered: true, as };
}

function nextRound(delivery: ListedOutgoing['delivery']): {
  readonly id: string;
  readonly round: number;
} {
  const round = (delivery.round ?? 1) + 1;
  return { id: deliveryId({ ...delivery, round }), round };
}
