import type { WebhookClock } from '../clock/webhook-clock.js';
import { deliveryId } from '../queue/delivery-id.js';
import type { WebhookQueue, KnownDelivery } from '../queue/webhook-queue.js';
import type { WebhookDelivery } from '../queue/webhook-delivery.interface.js';
import { changeOfRedrive, type DeliveryRecorder } from './delivery.recorder.js';
import type { DeliveryLog, DeliveryStatus, LoggedDelivery } from './delivery-log.js';
import type { NotRedeliveredReason, RedeliveredDelivery } from './webhook-deliveries.interface.js';

/** How a delivery is chosen, and whether anything is done. */
interface RedeliveryChoice {
  readonly dryRun: boolean;
  /** Whether somebody named this very delivery, and not a filter that it came under. */
  readonly isNamed: boolean;
}

/** Sends one delivery again. What the queue knows of it counts more than what the log was told. */
export class Redelivery {
  constructor(
    private readonly log: DeliveryLog,
    private readonly queue: WebhookQueue,
    private readonly recorder: DeliveryRecorder,
    private readonly clock: WebhookClock,
  ) {}

  async redeliver(logged: LoggedDelivery, choice: RedeliveryChoice): Promise<RedeliveredDelivery> {
    const { id } = logged.delivery;
    const status = statusOf(await this.receiptOf(id), logged.status);
    const last = await this.lastRound(logged);
    const reason = this.reasonAgainst(logged, status, last, choice);
    if (reason !== undefined) return { id, redelivered: false, reason };
    if (choice.dryRun) return { id, redelivered: false };
    if (status === 'lost') return this.enqueue(logged.delivery, id);
    if (status === 'dead') return this.redeliverDead(logged, last);
    return this.newRound(last, id);
  }

  private reasonAgainst(
    logged: LoggedDelivery,
    status: DeliveryStatus | 'lost',
    last: LoggedDelivery,
    { isNamed }: RedeliveryChoice,
  ): NotRedeliveredReason | undefined {
    if (status === 'pending') return 'pending';
    if (last !== logged && last.status === 'pending') return 'pending';
    if (isNamed) return undefined;
    if (last !== logged) return 'superseded';
    return status === 'delivered' && logged.status !== 'delivered' ? 'delivered' : undefined;
  }

  /** Under its old id, if the queue still has it. */
  private async redeliverDead(
    logged: LoggedDelivery,
    last: LoggedDelivery,
  ): Promise<RedeliveredDelivery> {
    const { id } = logged.delivery;
    // Told before, since the attempt may be over before the queue has answered, and what is told last stands.
    this.recorder.changed(changeOfRedrive(logged, this.clock.now()));
    const [redelivered] = await this.redeliverInQueue(logged);
    if (redelivered !== undefined) return { id, redelivered: true };
    const receipt = await this.receiptOf(id);
    if (receipt?.status === 'pending' || receipt?.status === 'delivered') {
      // Somebody else was faster.
      return { id, redelivered: false, reason: receipt.status };
    }
    this.takeBack(logged);
    return this.newRound(last, id);
  }

  private async redeliverInQueue(logged: LoggedDelivery): Promise<readonly string[]> {
    try {
      return await this.queue.redeliver([logged.delivery.id]);
    } catch (error) {
      this.takeBack(logged);
      throw error;
    }
  }

  /** It is dead after all. */
  private takeBack({ delivery, status, attempts, reason }: LoggedDelivery): void {
    const at = this.clock.now();
    this.recorder.changed({
      delivery,
      status,
      attempts,
      at,
      ...(reason !== undefined && { reason }),
    });
  }

  /** As another delivery of the same event: the one before stays what it was. */
  private async newRound(last: LoggedDelivery, id: string): Promise<RedeliveredDelivery> {
    for (let round = (last.delivery.round ?? 1) + 1; ; round++) {
      const delivery = { ...roundOf(last.delivery, round), createdAt: this.clock.now() };
      const result = await this.enqueue(delivery, id);
      // A round that the log has forgotten, and the queue has not.
      if (result.reason !== 'delivered') return result;
    }
  }

  private async enqueue(delivery: WebhookDelivery, id: string): Promise<RedeliveredDelivery> {
    const item = { delivery, notBefore: this.clock.now() };
    const [receipt] = await this.queue.enqueue([item]);
    if (receipt?.status === 'recorded') {
      await this.recorder.enqueued([item]);
      return { id, redelivered: true, ...(delivery.id !== id && { as: delivery.id }) };
    }
    const isPending = receipt?.status === 'pending';
    return { id, redelivered: false, reason: isPending ? 'pending' : 'delivered' };
  }

  /** Of the rounds that follow this one in the log, the last; itself where there is none. */
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

/** What the log has as pending and the queue does not know has been lost with its process: it can be sent as it is. */
function statusOf(
  receipt: KnownDelivery | undefined,
  logged: DeliveryStatus,
): DeliveryStatus | 'lost' {
  if (receipt === undefined) return logged === 'pending' ? 'lost' : logged;
  return receipt.status;
}

function roundOf(delivery: WebhookDelivery, round: number): WebhookDelivery {
  return { ...delivery, round, id: deliveryId({ ...delivery, round }) };
}
