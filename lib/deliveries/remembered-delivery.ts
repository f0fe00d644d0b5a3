import type { FailureReason } from '../queue/failure-reason.js';
import type { WebhookDelivery } from '../queue/webhook-delivery.interface.js';
import type {
  DeliveryChange,
  DeliveryStatus,
  LoggedAttempt,
  LoggedDelivery,
} from './delivery-log.js';

/** Attempts of one delivery that are remembered, the last ones: who redrives it for ever must not fill the memory. */
const MAX_ATTEMPTS = 100;

/** One delivery in the memory of a log, and what its changes make of it. */
export class RememberedDelivery {
  status: DeliveryStatus = 'pending';
  /** Of the payload and of the answers. */
  bytes: number;
  nextAttemptAt: number | undefined;
  private attempts = 0;
  private reason: FailureReason | undefined;
  private updatedAt: number;
  private made: LoggedAttempt[] = [];

  constructor(
    readonly delivery: WebhookDelivery,
    notBefore: number,
  ) {
    this.bytes = delivery.payload.bytes?.byteLength ?? 0;
    this.nextAttemptAt = notBefore;
    this.updatedAt = delivery.createdAt;
  }

  /** One that is heard of by a change. */
  static of(change: DeliveryChange): RememberedDelivery {
    const known = new RememberedDelivery(change.delivery, change.nextAttemptAt ?? change.at);
    known.updatedAt = -Infinity;
    known.apply(change);
    return known;
  }

  apply({ status, attempts, nextAttemptAt, reason, at, made }: DeliveryChange): void {
    if (made !== undefined) this.remember(made);
    if (this.status === 'delivered' || (status === 'pending' && at < this.updatedAt)) return;
    this.status = status;
    this.attempts = attempts;
    this.nextAttemptAt = status === 'pending' ? nextAttemptAt : undefined;
    this.reason = status === 'delivered' ? undefined : (reason ?? this.reason);
    this.updatedAt = at;
  }

  logged(): LoggedDelivery {
    const { delivery, status, attempts, nextAttemptAt, reason, updatedAt } = this;
    return {
      delivery,
      status,
      attempts,
      ...(nextAttemptAt !== undefined && { nextAttemptAt }),
      ...(reason !== undefined && { reason }),
      updatedAt,
    };
  }

  attemptsMade(): readonly LoggedAttempt[] {
    return this.made.toSorted((a, b) => a.at - b.at || a.attempt - b.attempt);
  }

  private remember(made: LoggedAttempt): void {
    if (this.made.some(({ attempt, at }) => attempt === made.attempt && at === made.at)) return;
    this.made.push(made);
    this.bytes += answerBytes(made);
    if (this.made.length > MAX_ATTEMPTS) this.bytes -= answerBytes(this.made.shift()!);
  }
}

function answerBytes({ answer }: LoggedAttempt): number {
  return answer === undefined ? 0 : Buffer.byteLength(answer);
}
