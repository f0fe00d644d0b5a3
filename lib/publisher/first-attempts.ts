import { setMaxListeners } from 'node:events';
import type { CancelWake, WebhookClock } from '../clock/webhook-clock.js';
import type { OutgoingRun } from '../deliveries/webhook.deliverer.js';
import {
  isWebhookError,
  WebhookDeliveryError,
  WebhookStoreError,
} from '../errors/webhook.error.js';
import type {
  DeliveryRecord,
  DeliveryOutcome,
  OutgoingDelivery,
} from '../queue/webhook-delivery.js';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import { requireSameContent } from '../sending/event-draft.js';
import type { SendResult } from './publish-options.js';

const STATUS = {
  delivered: 'delivered',
  dead: 'failed',
  retry: 'scheduled',
  defer: 'scheduled',
} as const satisfies Record<DeliveryOutcome['type'], SendResult['status']>;

/** The result of `send` after the first run of its delivery. */
function resultOfRun({ delivery, outcome, attempt, receipt }: OutgoingRun): SendResult {
  return {
    id: delivery.eventId,
    status: STATUS[outcome.type],
    attempts: outcome.type === 'dead' ? outcome.attempts : (attempt?.attempt ?? 0),
    durationMs: attempt?.durationMs ?? 0,
    statusCode: attempt?.statusCode,
    nextAttemptAt: 'at' in outcome ? new Date(outcome.at) : undefined,
    failureReason: 'reason' in outcome ? outcome.reason : undefined,
    receipt: receipt?.(),
  };
}

const RECORD_STATUS = { delivered: 'delivered', dead: 'failed', pending: 'scheduled' } as const;

/** The result of `send` for a delivery that the queue already knows. */
function resultOfRecord(id: string, record: DeliveryRecord): SendResult {
  const { status, attempts, nextAttemptAt, reason } = record;
  return {
    id,
    status: RECORD_STATUS[status],
    attempts,
    durationMs: 0,
    nextAttemptAt: nextAttemptAt === undefined ? undefined : new Date(nextAttemptAt),
    failureReason: reason,
  };
}

/** Milliseconds between two polls; most attempts end before the first. */
const FIRST_WAIT = 100;
const LONGEST_WAIT = 2_000;
/** A delivery of a limited lane that has been due for so long waits for the limits, which may be hours. */
const LIMITED_WAIT = 1_000;
/** A delivery that is delayed for longer waits for its endpoint, not for a free slot. */
const PUT_OFF = 5_000;

/** A first attempt that callers wait for. */
interface ExpectedAttempt {
  readonly delivery: OutgoingDelivery;
  readonly result: Promise<SendResult>;
  readonly resolve: (result: SendResult) => void;
  readonly reject: (error: Error) => void;
  callers: number;
  cancelPoll: CancelWake;
}

/** Records the delivery; resolves with what was recorded under its id before, if anything. */
type Recording = () => Promise<readonly (DeliveryRecord | undefined)[]>;

/** Waits for the first attempts of deliveries, for `send`. */
export class FirstAttempts {
  private readonly expected = new Map<string, ExpectedAttempt>();

  constructor(
    private readonly queue: WebhookQueue,
    private readonly clock: WebhookClock,
  ) {}

  /**
   * Joins a concurrent call with the same id; records the delivery if there is none, or if that call is aborted.
   *
   * @param wait - milliseconds until the first attempt is due
   */
  async make(
    delivery: OutgoingDelivery,
    wait: number,
    signal: AbortSignal | undefined,
    record: Recording,
  ): Promise<SendResult> {
    const joined = this.expected.get(delivery.id);
    if (joined === undefined) {
      const attempt = this.expect(delivery);
      return this.unlessAborted(attempt, this.start(attempt, wait, record), signal);
    }
    requireSameContent(delivery, joined.delivery);
    try {
      return { ...(await this.unlessAborted(joined, joined.result, signal)), duplicate: true };
    } catch (error) {
      if (!isWebhookError(error, 'aborted') || signal?.aborted === true) throw error;
      return this.make(delivery, wait, signal, record);
    }
  }

  /** Resolves the calls that wait for a delivery's first run, if there are any. */
  report(run: OutgoingRun): void {
    const attempt = this.expected.get(run.delivery.id);
    if (attempt !== undefined) this.end(attempt).resolve(resultOfRun(run));
  }

  failAll(makeError: () => Error): void {
    for (const attempt of this.expected.values()) this.end(attempt).reject(makeError());
  }

  private expect(delivery: OutgoingDelivery): ExpectedAttempt {
    let resolve!: ExpectedAttempt['resolve'];
    let reject!: ExpectedAttempt['reject'];
    const result = new Promise<SendResult>((onResult, onError) => {
      resolve = onResult;
      reject = onError;
    });
    // The caller may have stopped waiting by the time it is rejected.
    result.catch(() => {});
    const attempt = { delivery, result, resolve, reject, callers: 0, cancelPoll: () => {} };
    this.expected.set(delivery.id, attempt);
    return attempt;
  }

  private end(attempt: ExpectedAttempt): ExpectedAttempt {
    attempt.cancelPoll();
    if (this.isExpected(attempt)) this.expected.delete(attempt.delivery.id);
    return attempt;
  }

  private isExpected(attempt: ExpectedAttempt): boolean {
    return this.expected.get(attempt.delivery.id) === attempt;
  }

  private async start(
    attempt: ExpectedAttempt,
    wait: number,
    record: Recording,
  ): Promise<SendResult> {
    let isDuplicate = false;
    try {
      const [known] = await record();
      isDuplicate = known !== undefined;
      const dueAt = this.clock.now() + wait;
      if (known !== undefined) this.apply(known, attempt, dueAt);
      this.poll(attempt, Math.min(dueAt, known?.nextAttemptAt ?? dueAt));
    } catch (error) {
      this.end(attempt).reject(error as Error);
    }
    const result = await attempt.result;
    return isDuplicate ? { ...result, duplicate: true } : result;
  }

  /** Counts the callers of an attempt, which ends once the last one has left. */
  private async unlessAborted(
    attempt: ExpectedAttempt,
    result: Promise<SendResult>,
    signal: AbortSignal | undefined,
  ): Promise<SendResult> {
    attempt.callers++;
    if (signal === undefined) return result;
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        const error = aborted(signal);
        reject(error);
        if (--attempt.callers === 0) this.end(attempt).reject(error);
      };
      if (signal.aborted) leave();
      else {
        allowManyListeners(signal);
        signal.addEventListener('abort', leave, { once: true });
      }
      result.then(resolve, reject).finally(() => signal.removeEventListener('abort', leave));
    });
  }

  /**
   * Polls the queue for the outcome, from when the delivery is due: another process may make the attempt, and only that process gets
   * the report; or the delivery may be erased.
   */
  private poll(attempt: ExpectedAttempt, dueAt: number, wait = FIRST_WAIT): void {
    if (!this.isExpected(attempt)) return;
    const at = Math.max(this.clock.now(), dueAt) + wait;
    attempt.cancelPoll = this.clock.wakeAt(at, () => {
      void this.ask(attempt, dueAt).finally(() =>
        this.poll(attempt, dueAt, Math.min(wait * 2, LONGEST_WAIT)),
      );
    });
  }

  private async ask(attempt: ExpectedAttempt, dueAt: number): Promise<void> {
    let record: DeliveryRecord | undefined;
    try {
      [record] = await this.queue.find([attempt.delivery.id]);
    } catch {
      // An unavailable queue is polled again, as long as a caller waits.
      return;
    }
    if (record === undefined) this.end(attempt).reject(forgotten());
    else this.apply(record, attempt, dueAt);
  }

  /** Resolves the calls with what the queue knows, unless the first attempt is still to be awaited. */
  private apply(record: DeliveryRecord, attempt: ExpectedAttempt, dueAt: number): void {
    const { status, attempts, nextAttemptAt = 0, isLimited } = record;
    const now = this.clock.now();
    const isPutOff =
      nextAttemptAt > Math.max(dueAt, now) + PUT_OFF ||
      (isLimited === true && now - dueAt >= LIMITED_WAIT);
    if (status === 'pending' && attempts === 0 && !isPutOff) return;
    this.end(attempt).resolve(resultOfRecord(attempt.delivery.eventId, record));
  }
}

function forgotten(): WebhookStoreError {
  return new WebhookStoreError(
    'store_unavailable',
    'The delivery was recorded, but the queue no longer knows it, so its outcome is unknown.',
  );
}

/** Each call with the signal adds a listener and removes it, so there is no leak to warn of. */
function allowManyListeners(signal: AbortSignal): void {
  try {
    setMaxListeners(Infinity, signal);
  } catch {
    // It is not one of Node.
  }
}

export function aborted(signal: AbortSignal): WebhookDeliveryError {
  return new WebhookDeliveryError('aborted', 'The signal was aborted.', { cause: signal.reason });
}
