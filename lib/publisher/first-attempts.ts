import { setMaxListeners } from 'node:events';
import type { CancelWake, WebhookClock } from '../clock/webhook-clock.js';
import type { OutgoingRun } from '../deliveries/webhook.deliverer.js';
import { WebhookDeliveryError, WebhookStoreError } from '../errors/webhook.error.js';
import type {
  DeliveryRecord,
  DeliveryOutcome,
  OutgoingDelivery,
} from '../queue/webhook-delivery.js';
import type { WebhookQueue } from '../queue/webhook-queue.js';
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

/** A call of `send` that waits for the first attempt of its delivery. */
interface Call {
  readonly delivery: OutgoingDelivery;
  readonly result: Promise<SendResult>;
  readonly resolve: (result: SendResult) => void;
  readonly reject: (error: Error) => void;
  cancelPoll: CancelWake;
}

/** Records the delivery; resolves with what was recorded under its id before, if anything. */
type Recording = () => Promise<readonly (DeliveryRecord | undefined)[]>;

/** Waits for the first attempts of deliveries, for `send`. */
export class FirstAttempts {
  /** By the id of their delivery. */
  private readonly calls = new Map<string, Set<Call>>();

  constructor(
    private readonly queue: WebhookQueue,
    private readonly clock: WebhookClock,
  ) {}

  /** @param wait - milliseconds until the first attempt is due */
  async make(
    delivery: OutgoingDelivery,
    wait: number,
    signal: AbortSignal | undefined,
    record: Recording,
  ): Promise<SendResult> {
    const call = this.begin(delivery);
    try {
      return await unlessAborted(this.resultOf(call, wait, record), signal);
    } finally {
      this.end(call);
    }
  }

  /** Resolves the calls that wait for a delivery's first run, if there are any. */
  report(run: OutgoingRun): void {
    const calls = this.calls.get(run.delivery.id);
    if (calls === undefined) return;
    const result = resultOfRun(run);
    for (const call of calls) {
      // One with other content is about to be rejected with `id_conflict`.
      const isSame = call.delivery.contentDigest === run.delivery.contentDigest;
      if (isSame) this.end(call).resolve(result);
    }
  }

  failAll(makeError: () => Error): void {
    for (const calls of this.calls.values()) {
      for (const call of calls) this.end(call).reject(makeError());
    }
  }

  private begin(delivery: OutgoingDelivery): Call {
    let resolve!: Call['resolve'];
    let reject!: Call['reject'];
    const result = new Promise<SendResult>((onResult, onError) => {
      resolve = onResult;
      reject = onError;
    });
    // It may be rejected while the delivery is being recorded, or after the caller has left.
    result.catch(() => {});
    const call = { delivery, result, resolve, reject, cancelPoll: () => {} };
    const others = this.calls.get(delivery.id);
    if (others === undefined) this.calls.set(delivery.id, new Set([call]));
    else others.add(call);
    return call;
  }

  private end(call: Call): Call {
    const { id } = call.delivery;
    call.cancelPoll();
    const calls = this.calls.get(id);
    calls?.delete(call);
    if (calls?.size === 0) this.calls.delete(id);
    return call;
  }

  private isWaiting(call: Call): boolean {
    return this.calls.get(call.delivery.id)?.has(call) === true;
  }

  private async resultOf(call: Call, wait: number, record: Recording): Promise<SendResult> {
    let isDuplicate = false;
    try {
      const [known] = await record();
      isDuplicate = known !== undefined;
      const dueAt = this.clock.now() + wait;
      if (known !== undefined) this.apply(known, call, dueAt);
      this.poll(call, Math.min(dueAt, known?.nextAttemptAt ?? dueAt));
    } catch (error) {
      this.end(call).reject(error as Error);
    }
    const result = await call.result;
    return isDuplicate ? { ...result, duplicate: true } : result;
  }

  /**
   * Polls the queue for the outcome, from when the delivery is due: another process may make the attempt, and only that process gets
   * the report; or the delivery may be erased.
   */
  private poll(call: Call, dueAt: number, wait = FIRST_WAIT): void {
    if (!this.isWaiting(call)) return;
    const at = Math.max(this.clock.now(), dueAt) + wait;
    call.cancelPoll = this.clock.wakeAt(at, () => {
      void this.ask(call, dueAt).finally(() =>
        this.poll(call, dueAt, Math.min(wait * 2, LONGEST_WAIT)),
      );
    });
  }

  private async ask(call: Call, dueAt: number): Promise<void> {
    let record: DeliveryRecord | undefined;
    try {
      [record] = await this.queue.find([call.delivery.id]);
    } catch {
      // An unavailable queue is polled again, as long as a caller waits.
      return;
    }
    if (record === undefined) this.end(call).reject(forgotten());
    else this.apply(record, call, dueAt);
  }

  /** Resolves the calls with what the queue knows, unless the first attempt is still to be awaited. */
  private apply(record: DeliveryRecord, call: Call, dueAt: number): void {
    const { status, attempts, nextAttemptAt = 0, isLimited } = record;
    const now = this.clock.now();
    const isPutOff =
      nextAttemptAt > Math.max(dueAt, now) + PUT_OFF ||
      (isLimited === true && now - dueAt >= LIMITED_WAIT);
    if (status === 'pending' && attempts === 0 && !isPutOff) return;
    this.end(call).resolve(resultOfRecord(call.delivery.eventId, record));
  }
}

function forgotten(): WebhookStoreError {
  return new WebhookStoreError(
    'store_unavailable',
    'The delivery was recorded, but the queue no longer knows it, so its outcome is unknown.',
  );
}

async function unlessAborted(
  result: Promise<SendResult>,
  signal: AbortSignal | undefined,
): Promise<SendResult> {
  if (signal === undefined) return result;
  return new Promise((resolve, reject) => {
    const leave = (): void => reject(aborted(signal));
    if (signal.aborted) leave();
    else {
      allowManyListeners(signal);
      signal.addEventListener('abort', leave, { once: true });
    }
    result.then(resolve, reject).finally(() => signal.removeEventListener('abort', leave));
  });
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
