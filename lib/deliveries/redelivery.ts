import type { WebhookClock } from '../clock/webhook-clock.js';
import { deliveryId } from '../queue/delivery-id.js';
import type { WebhookQueue, KnownDelivery } from '../queue/webhook-queue.js';
import type { OutgoingDelivery } from '../queue/webhook-delivery.interface.js';
import type { DeliveryLogWriter } from './delivery-log.writer.js';
import type {
  DeliveryLog,
  DeliveryPageRequest,
  DeliveryStatus,
  LoggedDelivery,
} from './delivery-log.js';
import type { NotRedeliveredReason, RedeliveredDelivery } from './webhook-deliveries.interface.js';

interface RedeliveryOptions {
  readonly dryRun: boolean;
  /** Whether the caller passed this delivery's id, and not a filter that matches it. */
  readonly isNamed: boolean;
}

/** Sends one delivery again. The queue's state of a delivery takes precedence over the log's. */
export class Redelivery {
  constructor(
    private readonly log: DeliveryLog,
    private readonly queue: WebhookQueue,
    private readonly logWriter: DeliveryLogWriter,
    private readonly clock: WebhookClock,
  ) {}

  async redeliver(
    logged: LoggedDelivery,
    options: RedeliveryOptions,
  ): Promise<RedeliveredDelivery> {
    const { id } = logged.delivery;
    const status = statusOf(await this.receiptOf(id), logged.status);
    const last = await this.lastRound(logged);
    const isWaiting = (last === logged ? status : last.status) === 'pending';
    if (isWaiting && options.isNamed) return this.bringForward(last, id, options);
    const reason = isWaiting ? 'pending' : reasonAgainst(logged, status, last, options);
    if (reason !== undefined) return { id, redelivered: false, reason };
    if (options.dryRun) return { id, redelivered: false };
    if (status === 'lost') return this.enqueue(logged.delivery, id);
    if (status === 'dead') return this.redeliverDead(logged, last);
    return this.newRound(last, id);
  }

  /** Makes the next attempt of a pending delivery due now. A running attempt is left alone. */
  private async bringForward(
    waiting: LoggedDelivery,
    id: string,
    { dryRun }: RedeliveryOptions,
  ): Promise<RedeliveredDelivery> {
    const { delivery, attempts, updatedAt } = waiting;
    const as = delivery.id === id ? {} : { as: delivery.id };
    const now = this.clock.now();
    if (dryRun) {
      const receipt = await this.receiptOf(delivery.id);
      const isDue = receipt?.status !== 'pending' || receipt.nextAttemptAt <= now;
      return { id, redelivered: false, ...(isDue && { reason: 'pending' }) };
    }
    const [changed] = await this.queue.redeliver([delivery.id]);
    if (changed === undefined) return { id, redelivered: false, reason: 'pending' };
    // As old as what the log knows, so that the outcome of the attempt, which may be over by now, is newer.
    const at = updatedAt;
    this.logWriter.changed({ delivery, status: 'pending', attempts, nextAttemptAt: now, at });
    return { id, redelivered: true, ...as };
  }

  /** Under its old id, if the queue still has it. */
  private async redeliverDead(
    logged: LoggedDelivery,
    last: LoggedDelivery,
  ): Promise<RedeliveredDelivery> {
    const { delivery } = logged;
    const { id } = delivery;
    const at = this.clock.now();
    // Logged first: the attempt may end before the queue answers, and the latest change wins.
    this.logWriter.changed({ delivery, status: 'pending', attempts: 0, nextAttemptAt: at, at });
    const [redelivered] = await this.redeliverInQueue(logged);
    if (redelivered !== undefined) return { id, redelivered: true };
    const receipt = await this.receiptOf(id);
    if (receipt?.status === 'pending' || receipt?.status === 'delivered') {
      // Another call was faster.
      return { id, redelivered: false, reason: receipt.status };
    }
    this.restore(logged);
    return this.newRound(last, id);
  }

  private async redeliverInQueue(logged: LoggedDelivery): Promise<readonly string[]> {
    try {
      return await this.queue.redeliver([logged.delivery.id]);
    } catch (error) {
      this.restore(logged);
      throw error;
    }
  }

  /** Logs the state from before a redelivery that did not happen. */
  private restore({ delivery, status, attempts, reason }: LoggedDelivery): void {
    const at = this.clock.now();
    this.logWriter.changed({
      delivery,
      status,
      attempts,
      at,
      ...(reason !== undefined && { reason }),
    });
  }

  /** Sends the event as another delivery; the previous one keeps its outcome. */
  private async newRound(last: LoggedDelivery, id: string): Promise<RedeliveredDelivery> {
    for (let round = (last.delivery.round ?? 1) + 1; ; round++) {
      const delivery = { ...roundOf(last.delivery, round), createdAt: this.clock.now() };
      const result = await this.enqueue(delivery, id);
      // Delivered: a round that only the queue still remembers.
      if (result.reason !== 'delivered') return result;
    }
  }

  private async enqueue(delivery: OutgoingDelivery, id: string): Promise<RedeliveredDelivery> {
    const item = { delivery, notBefore: this.clock.now() };
    const [receipt] = await this.queue.enqueue([item]);
    if (receipt?.status === 'recorded') {
      await this.logWriter.enqueued([item]);
      return { id, redelivered: true, ...(delivery.id !== id && { as: delivery.id }) };
    }
    const isPending = receipt?.status === 'pending';
    return { id, redelivered: false, reason: isPending ? 'pending' : 'delivered' };
  }

  /** The last round in the log that follows this delivery; the delivery itself if none does. */
  private async lastRound(logged: LoggedDelivery): Promise<LoggedDelivery> {
    let last = logged;
    for (;;) {
      const { delivery } = last;
      const next = await this.log.find(roundOf(delivery, (delivery.round ?? 1) + 1).id);
      if (next === undefined) return last;
      last = next;
    }
  }

  private async receiptOf(id: string): Promise<KnownDelivery | undefined> {
    const [receipt] = await this.queue.find([id]);
    return receipt;
  }
}

/** Deliveries that are listed, and made due, at once. */
const PAGE = 500;

/** Makes the deliveries due that waited because their endpoint was paused, the oldest first. */
export async function attemptPaused(
  endpointId: string,
  log: DeliveryLog,
  queue: WebhookQueue,
): Promise<void> {
  const ids: string[] = [];
  for (let after: DeliveryPageRequest['after']; ;) {
    const filter = { endpointId, status: 'pending' } as const;
    const page = await log.list(filter, { limit: PAGE, ...(after && { after }) });
    const paused = page.filter(({ reason }) => reason === 'endpoint_paused');
    ids.push(...paused.map(({ delivery }) => delivery.id));
    if (page.length < PAGE) break;
    after = page.at(-1)!.delivery;
  }
  ids.reverse();
  for (let start = 0; start < ids.length; start += PAGE) {
    const receipts = await queue.find(ids.slice(start, start + PAGE));
    // The log may be behind: a delivery that is dead by now must not get another round.
    const pending = receipts.flatMap((receipt) =>
      receipt?.status === 'pending' ? [receipt.id] : [],
    );
    if (pending.length > 0) await queue.redeliver(pending);
  }
}

/** `lost`: pending in the log and unknown to the queue, which lost it with a process. It can be sent as it is. */
type DeliveryState = DeliveryStatus | 'lost';

function statusOf(receipt: KnownDelivery | undefined, logged: DeliveryStatus): DeliveryState {
  if (receipt === undefined) return logged === 'pending' ? 'lost' : logged;
  return receipt.status;
}

/** Why a delivery that is not waiting is not sent again. */
function reasonAgainst(
  logged: LoggedDelivery,
  status: DeliveryState,
  last: LoggedDelivery,
  { isNamed }: RedeliveryOptions,
): NotRedeliveredReason | undefined {
  if (isNamed) return undefined;
  if (last !== logged) return 'superseded';
  return status === 'delivered' && logged.status !== 'delivered' ? 'delivered' : undefined;
}

function roundOf(delivery: OutgoingDelivery, round: number): OutgoingDelivery {
  return { ...delivery, round, id: deliveryId({ ...delivery, round }) };
}
