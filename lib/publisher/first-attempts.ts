import type { WebhookClock } from '../clock/webhook-clock.js';
import type { DeliveryReport } from '../deliveries/webhook.deliverer.js';
import { WebhookStoreError } from '../errors/webhook.error.js';
import type { WebhookQueue, DeliveryReceipt } from '../queue/webhook-queue.js';
import { RecentEntries } from '../queue/recent-entries.js';
import type { WebhookDelivery } from '../queue/webhook-delivery.interface.js';
import type { SendResult } from './publish-options.js';

/** The result of `send` after the first run of its delivery. */
export function resultOfReport({ delivery, outcome, result, made }: DeliveryReport): SendResult {
  const facts = {
    id: delivery.eventId,
    durationMs: result?.durationMs ?? 0,
    ...(result?.statusCode !== undefined && { statusCode: result.statusCode }),
    ...(made?.receipt !== undefined && { receipt: made.receipt() }),
  };
  const attempts = result?.attempt ?? 0;
  switch (outcome.type) {
    case 'delivered':
      return { ...facts, attempts, status: 'delivered' };
    case 'dead':
      return {
        ...facts,
        attempts: outcome.attempts,
        status: 'failed',
        failureReason: outcome.reason,
      };
    case 'retry':
      return {
        ...facts,
        attempts,
        status: 'scheduled',
        nextAttemptAt: new Date(outcome.at),
        failureReason: outcome.reason,
      };
    case 'defer':
      return { ...facts, attempts, status: 'scheduled', nextAttemptAt: new Date(outcome.at) };
  }
}

/**
 * The result of `send` for a delivery that the queue already knows.
 *
 * @returns `undefined` if its first attempt has not been made yet
 */
export function resultOfReceipt(id: string, receipt: DeliveryReceipt): SendResult | undefined {
  switch (receipt.status) {
    case 'recorded':
      return undefined;
    case 'delivered':
      return { id, status: 'delivered', attempts: receipt.attempts, durationMs: 0 };
    case 'dead':
      return {
        id,
        status: 'failed',
        attempts: receipt.attempts,
        durationMs: 0,
        failureReason: receipt.reason,
      };
    case 'pending':
      return receipt.attempts === 0 ? undefined : resultOfWait(id, receipt);
  }
}

/** The result for a delivery that waits for its next attempt, which may be the first. */
function resultOfWait(
  id: string,
  receipt: Extract<DeliveryReceipt, { status: 'pending' }>,
): SendResult {
  return {
    id,
    status: 'scheduled',
    attempts: receipt.attempts,
    durationMs: 0,
    nextAttemptAt: new Date(receipt.nextAttemptAt),
    ...(receipt.reason !== undefined && { failureReason: receipt.reason }),
  };
}

/** Milliseconds between two polls; most attempts end before the first. */
const FIRST_WAIT = 100;
const LONGEST_WAIT = 2_000;
/** A delivery that is delayed for longer waits for its destination, not for a free slot. */
const PUT_OFF = 5_000;

/**
 * Polls a shared queue for the outcome of first attempts, which another process may make: only that process
 * gets the report.
 */
export class SharedAttempts {
  constructor(
    private readonly queue: WebhookQueue,
    private readonly firstAttempts: FirstAttempts,
    private readonly clock: WebhookClock,
  ) {}

  /** Starts to poll for a recorded delivery. Does nothing once its attempt was reported here. */
  watch(delivery: WebhookDelivery, notBefore: number, wait = FIRST_WAIT): void {
    if (!this.queue.shared || !this.firstAttempts.awaits(delivery.id)) return;
    this.clock.wakeAt(this.clock.now() + wait, () => {
      void this.ask(delivery, notBefore).finally(() =>
        this.watch(delivery, notBefore, Math.min(wait * 2, LONGEST_WAIT)),
      );
    });
  }

  private async ask({ id, eventId }: WebhookDelivery, notBefore: number): Promise<void> {
    if (!this.firstAttempts.awaits(id)) return;
    // An unavailable queue is polled again, as long as a caller waits.
    const found = await this.find(id);
    if (found === undefined) return;
    const [receipt] = found;
    if (receipt === undefined) return this.firstAttempts.fail(id, forgotten());
    const putOff =
      receipt.status === 'pending' &&
      receipt.nextAttemptAt > Math.max(notBefore, this.clock.now()) + PUT_OFF;
    const result = putOff ? resultOfWait(eventId, receipt) : resultOfReceipt(eventId, receipt);
    if (result !== undefined) this.firstAttempts.settle(id, () => result);
  }

  /** @returns `undefined` if the queue is unavailable */
  private async find(id: string): Promise<Awaited<ReturnType<WebhookQueue['find']>> | undefined> {
    try {
      return await this.queue.find([id]);
    } catch {
      return undefined;
    }
  }
}

function forgotten(): WebhookStoreError {
  return new WebhookStoreError(
    'store_unavailable',
    'The delivery was recorded, but the queue no longer knows it, so its outcome is unknown.',
  );
}

/** Results that are kept, so that a repeated `send` returns the same one. */
const MAX_REMEMBERED = 1_000;

/** The first attempt at a delivery, to come or remembered. */
interface FirstAttempt {
  readonly contentDigest: string | undefined;
  readonly result: Promise<SendResult>;
}

interface Expectation extends FirstAttempt {
  readonly resolve: (result: SendResult) => void;
  readonly reject: (error: Error) => void;
}

/** The first attempts that calls of `send` wait for, and the latest results. */
export class FirstAttempts {
  private readonly expected = new Map<string, Expectation>();
  private readonly settled = new RecentEntries<FirstAttempt>(MAX_REMEMBERED);

  /** @returns `undefined` unless a call of `send` waits for this delivery, or waited lately */
  find(deliveryId: string): FirstAttempt | undefined {
    return this.expected.get(deliveryId) ?? this.settled.get(deliveryId);
  }

  /** Starts to wait. Call it before the delivery is recorded: its attempt may end at any time after. */
  expect({ id, contentDigest }: WebhookDelivery): Promise<SendResult> {
    let resolve!: Expectation['resolve'];
    let reject!: Expectation['reject'];
    const result = new Promise<SendResult>((onResult, onError) => {
      resolve = onResult;
      reject = onError;
    });
    // The caller may have stopped waiting by the time it is rejected.
    result.catch(() => {});
    this.expected.set(id, { contentDigest, result, resolve, reject });
    return result;
  }

  /** Whether a call of `send` still waits for it. */
  awaits(deliveryId: string): boolean {
    return this.expected.has(deliveryId);
  }

  settle(deliveryId: string, makeResult: () => SendResult): void {
    const expectation = this.expected.get(deliveryId);
    if (expectation === undefined) return;
    this.expected.delete(deliveryId);
    expectation.resolve(makeResult());
    const { contentDigest, result } = expectation;
    this.settled.set(deliveryId, { contentDigest, result });
  }

  fail(deliveryId: string, error: Error): void {
    this.expected.get(deliveryId)?.reject(error);
    this.expected.delete(deliveryId);
  }

  failAll(makeError: () => Error): void {
    for (const { reject } of this.expected.values()) reject(makeError());
    this.expected.clear();
  }
}
