import type { WebhookClock } from '../clock/webhook-clock.js';
import type { OutgoingRun } from '../deliveries/webhook.deliverer.js';
import { isWebhookError, WebhookStoreError } from '../errors/webhook.error.js';
import type {
  DeliveryRecord,
  DeliveryOutcome,
  OutgoingDelivery,
} from '../queue/webhook-delivery.js';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import { requireSameContent } from '../sending/event-draft.js';
import { aborted } from './event-recorder.js';
import type { ResolvedPublishOptions, SendResult } from './publish-options.js';

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
/** A delivery that is delayed for longer waits for its endpoint, not for a free slot. */
const PUT_OFF = 5_000;
/** Results for ids that callers chose, which are kept so that a repeated `send` returns the same one. */
const MAX_REMEMBERED = 1_000;

/** The first attempt at a delivery, to come or remembered. */
interface FirstAttempt {
  readonly contentDigest: string | undefined;
  readonly result: Promise<SendResult>;
}

/** An attempt that a caller waits for. */
interface ExpectedAttempt extends FirstAttempt {
  /** Whether the caller chose the id: a random one is not used again. */
  readonly isRepeatable: boolean;
  readonly resolve: (result: SendResult) => void;
  readonly reject: (error: Error) => void;
}

/** Records the delivery; resolves with what was recorded under its id before, if anything. */
type Recording = () => Promise<readonly (DeliveryRecord | undefined)[]>;

/** Waits for the first attempts of deliveries, for `send`; remembers the latest results. */
export class FirstAttempts {
  private readonly expected = new Map<string, ExpectedAttempt>();
  private readonly settled = new Map<string, FirstAttempt>();

  constructor(
    private readonly queue: WebhookQueue,
    private readonly clock: WebhookClock,
  ) {}

  /**
   * Joins the first attempt of a concurrent or recent call with the same id; records the delivery if there is none, or if that
   * call is aborted.
   */
  async make(
    delivery: OutgoingDelivery,
    options: ResolvedPublishOptions,
    record: Recording,
  ): Promise<SendResult> {
    const joined = this.expected.get(delivery.id) ?? this.settled.get(delivery.id);
    const result =
      joined === undefined
        ? this.start(delivery, options, record)
        : this.join(joined, delivery, options, record);
    return options.signal === undefined ? result : unlessAborted(result, options.signal);
  }

  private async join(
    joined: FirstAttempt,
    delivery: OutgoingDelivery,
    options: ResolvedPublishOptions,
    record: Recording,
  ): Promise<SendResult> {
    requireSameContent(delivery, joined);
    try {
      return { ...(await joined.result), duplicate: true };
    } catch (error) {
      if (!isWebhookError(error, 'aborted')) throw error;
      return this.make(delivery, options, record);
    }
  }

  /** Resolves the call that waits for a delivery's first run, if there is one. */
  report(run: OutgoingRun): void {
    const { id } = run.delivery;
    if (this.expected.has(id)) this.settle(id, resultOfRun(run));
  }

  /** Rejects all that wait. */
  failAll(makeError: () => Error): void {
    for (const id of this.expected.keys()) this.take(id)?.reject(makeError());
  }

  private async start(
    delivery: OutgoingDelivery,
    options: ResolvedPublishOptions,
    record: Recording,
  ): Promise<SendResult> {
    // Before it is recorded: the attempt may end at any time after.
    const result = this.expect(delivery, options.id !== undefined);
    let isDuplicate = false;
    try {
      const [known] = await record();
      isDuplicate = known !== undefined;
      const notBefore = this.clock.now() + options.delay;
      const result = known && this.resultOf(delivery, known, notBefore);
      if (result !== undefined) this.settle(delivery.id, result);
      if (this.queue.shared) this.poll(delivery, notBefore);
    } catch (error) {
      this.take(delivery.id)?.reject(error as Error);
    }
    return isDuplicate ? { ...(await result), duplicate: true } : result;
  }

  private expect(
    { id, contentDigest }: OutgoingDelivery,
    isRepeatable: boolean,
  ): Promise<SendResult> {
    let resolve!: ExpectedAttempt['resolve'];
    let reject!: ExpectedAttempt['reject'];
    const result = new Promise<SendResult>((onResult, onError) => {
      resolve = onResult;
      reject = onError;
    });
    // The caller may have stopped waiting by the time it is rejected.
    result.catch(() => {});
    this.expected.set(id, { contentDigest, isRepeatable, result, resolve, reject });
    return result;
  }

  private settle(id: string, sent: SendResult): void {
    const attempt = this.take(id);
    if (attempt === undefined) return;
    attempt.resolve(sent);
    const { contentDigest, isRepeatable, result } = attempt;
    if (!isRepeatable) return;
    this.settled.set(id, { contentDigest, result });
    if (this.settled.size <= MAX_REMEMBERED) return;
    const [oldest] = this.settled.keys();
    this.settled.delete(oldest!);
  }

  private take(id: string): ExpectedAttempt | undefined {
    const attempt = this.expected.get(id);
    this.expected.delete(id);
    return attempt;
  }

  /** Polls a shared queue for the outcome: another process may make the attempt, and only that process gets the report. */
  private poll(delivery: OutgoingDelivery, notBefore: number, wait = FIRST_WAIT): void {
    if (!this.expected.has(delivery.id)) return;
    this.clock.wakeAt(this.clock.now() + wait, () => {
      void this.ask(delivery, notBefore).finally(() =>
        this.poll(delivery, notBefore, Math.min(wait * 2, LONGEST_WAIT)),
      );
    });
  }

  private async ask(delivery: OutgoingDelivery, notBefore: number): Promise<void> {
    const { id } = delivery;
    if (!this.expected.has(id)) return;
    // An unavailable queue is polled again, as long as a caller waits.
    const found = await this.find(id);
    if (found === undefined) return;
    const [record] = found;
    if (record === undefined) return this.take(id)?.reject(forgotten());
    const result = this.resultOf(delivery, record, notBefore);
    if (result !== undefined) this.settle(id, result);
  }

  /** @returns `undefined` if the first attempt is to be awaited */
  private resultOf(
    { eventId }: OutgoingDelivery,
    record: DeliveryRecord,
    notBefore: number,
  ): SendResult | undefined {
    const { status, attempts, nextAttemptAt = 0 } = record;
    const isPutOff = nextAttemptAt > Math.max(notBefore, this.clock.now()) + PUT_OFF;
    const isAwaited = status === 'pending' && attempts === 0 && !isPutOff;
    return isAwaited ? undefined : resultOfRecord(eventId, record);
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

async function unlessAborted<T>(result: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const abort = (): void => reject(aborted(signal));
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    result.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}
