import { deliveryLane } from './delivery-identity.js';
import type { PendingDelivery } from './pending-deliveries.js';
import type {
  DeliveryAttempt,
  DeliveryKeyState,
  DeliveryRecord,
  DeliveryRun,
  DeliveryStatus,
  FailureReason,
  WebhookDelivery,
} from './webhook-delivery.js';

/** Stored attempts per delivery. */
const MAX_ATTEMPTS = 20;

/** A delivery in memory. */
export class RememberedDelivery implements PendingDelivery {
  readonly lane: string;
  status: DeliveryStatus = 'pending';
  /** How often in a row the handler threw. */
  throws = 0;
  attempts: readonly DeliveryAttempt[] = [];
  /** Its part in the order of its key; absent without one, and once it has had its turn. */
  turn: { readonly key: string; readonly isWaiting: boolean } | undefined;
  private blocksKey = false;
  private attemptCount = 0;
  private reason: FailureReason | undefined;
  private updatedAt: number;
  private payloadDropped: true | undefined;

  constructor(
    public delivery: WebhookDelivery,
    public due: number,
    public order: number,
  ) {
    this.lane = deliveryLane(delivery);
    this.updatedAt = delivery.createdAt;
  }

  /** The number of its next attempt. */
  get nextAttempt(): number {
    return this.attemptCount + 1;
  }

  get isRestorable(): boolean {
    return this.payloadDropped === undefined;
  }

  /** Whether later deliveries of its key wait for it. */
  get holdsKey(): boolean {
    return this.status === 'pending' || (this.status === 'dead' && this.blocksKey);
  }

  /** Of its payload and its answers. */
  get bytes(): number {
    const payload = this.delivery.payload.bytes?.byteLength ?? 0;
    return this.attempts.reduce(
      (sum, { answer }) => sum + (answer === undefined ? 0 : Buffer.byteLength(answer)),
      payload,
    );
  }

  record(): DeliveryRecord {
    const { delivery, status, attemptCount, reason, updatedAt, due, payloadDropped } = this;
    return {
      delivery,
      status,
      attempts: attemptCount,
      nextAttemptAt: status === 'pending' ? due : undefined,
      reason,
      updatedAt,
      payloadDropped,
      keyState: this.keyState,
    };
  }

  private get keyState(): DeliveryKeyState | undefined {
    if (this.turn === undefined || this.status === 'delivered') return undefined;
    if (this.status === 'dead') return 'blocking';
    return this.turn.isWaiting ? 'waiting' : undefined;
  }

  /** Applies the outcome and the attempt of a run. */
  apply({ outcome, attempt }: DeliveryRun, now: number): void {
    this.throws = 0;
    this.updatedAt = now;
    if (attempt !== undefined) this.attempts = [...this.attempts, attempt].slice(-MAX_ATTEMPTS);
    switch (outcome.type) {
      case 'delivered':
        this.status = 'delivered';
        this.attemptCount++;
        this.reason = undefined;
        break;
      case 'dead':
        this.status = 'dead';
        this.attemptCount = outcome.attempts;
        this.reason = outcome.reason;
        this.blocksKey = outcome.blocksKey === true;
        break;
      case 'retry':
        this.attemptCount++;
        this.reason = outcome.reason;
        this.due = outcome.at;
        break;
      case 'defer':
        this.reason = outcome.reason ?? this.reason;
        this.due = outcome.at;
    }
  }

  /** Makes a dead delivery pending, from the first attempt on. */
  startRound(now: number, order: number): void {
    this.status = 'pending';
    this.attemptCount = 0;
    this.due = now;
    this.order = order;
    this.updatedAt = now;
  }

  /** Drops the payload, and the answers of the attempts. */
  dropPayload(): void {
    this.delivery = {
      ...this.delivery,
      payload: { ...this.delivery.payload, bytes: undefined },
    };
    this.attempts = this.attempts.map((attempt) => ({ ...attempt, answer: undefined }));
    this.payloadDropped = true;
  }
}
