import type { CancelWake, WebhookClock } from '../clock/webhook-clock.js';
import { isWebhookError, WebhookSigningError } from '../errors/webhook.error.js';
import type { FailureReason } from '../queue/failure-reason.js';
import { isThenable, type MaybePromise } from '../token/maybe-promise.js';

/**
 * Ends an attempt when its time is over, and at shutdown. axios takes it for an AbortSignal; a real one costs several
 * microseconds (benchmark `send`) and is created only for code of the application.
 */
export class AttemptDeadline {
  /** Epoch milliseconds; `Infinity` until it is started by {@link AttemptDeadlines}. */
  at = Infinity;
  aborted = false;
  /** Why the attempt has ended. */
  reason: Extract<FailureReason, 'timeout' | 'aborted'> = 'aborted';
  private readonly listeners: (() => void)[] = [];
  private controller: AbortController | undefined;

  get signal(): AbortSignal {
    if (this.controller === undefined) {
      this.controller = new AbortController();
      if (this.aborted) this.controller.abort(this.reason);
    }
    return this.controller.signal;
  }

  abort(reason: AttemptDeadline['reason']): void {
    if (this.aborted) return;
    this.aborted = true;
    this.reason = reason;
    this.controller?.abort(reason);
    for (const listener of this.listeners.splice(0)) listener();
  }

  /**
   * Releases the request of an attempt that has ended: a Map that contained this object may hold on to it until the next full
   * garbage collection.
   */
  forgetListeners(): void {
    this.listeners.length = 0;
  }

  addEventListener(_type: 'abort', listener: () => void): void {
    this.listeners.push(listener);
  }

  removeEventListener(_type: 'abort', listener: () => void): void {
    const index = this.listeners.indexOf(listener);
    if (index >= 0) this.listeners.splice(index, 1);
  }
}

/** Ends attempts that take too long, with one timer for all: nearly all end before it (benchmark `send`). */
export class AttemptDeadlines {
  private readonly running = new Map<AttemptDeadline, number>();
  private armed: { readonly at: number; readonly cancel: CancelWake } | undefined;

  constructor(private readonly clock: WebhookClock) {}

  /** @param timeout - milliseconds from `now` */
  start(now: number, timeout: number): AttemptDeadline {
    const deadline = new AttemptDeadline();
    deadline.at = now + timeout;
    this.running.set(deadline, timeout);
    if (this.armed === undefined || deadline.at < this.armed.at) this.arm(deadline.at);
    return deadline;
  }

  /** The attempt has ended. */
  end(deadline: AttemptDeadline): void {
    this.running.delete(deadline);
    deadline.forgetListeners();
    if (this.running.size === 0) this.disarm();
  }

  /** Aborts all that run, at shutdown. */
  abortAll(): void {
    for (const deadline of this.running.keys()) deadline.abort('aborted');
    this.disarm();
  }

  private arm(at: number): void {
    this.disarm();
    this.armed = { at, cancel: this.clock.wakeAt(at, () => this.wake()) };
  }

  private disarm(): void {
    this.armed?.cancel();
    this.armed = undefined;
  }

  private wake(): void {
    const now = this.clock.now();
    this.armed = undefined;
    let next = Infinity;
    for (const [deadline, timeout] of this.running) {
      // A clock that was set back must not extend an attempt by more than its timeout.
      deadline.at = Math.min(deadline.at, now + timeout);
      if (deadline.at <= now) deadline.abort('timeout');
      else next = Math.min(next, deadline.at);
    }
    if (next < Infinity) this.arm(next);
  }
}

/**
 * Waits for a signature until the attempt ends. A later signature is dropped.
 *
 * @throws {@link WebhookSigningError} `signing_failed`, whose cause is the deadline's reason
 */
export function within<T>(deadline: AttemptDeadline, signed: MaybePromise<T>): MaybePromise<T> {
  return isThenable(signed) ? race(deadline, signed) : signed;
}

async function race<T>(deadline: AttemptDeadline, signed: Promise<T>): Promise<T> {
  let stop = (): void => undefined;
  const late = new Promise<never>((_, reject) => {
    stop = () => reject(tooLate(deadline));
    if (deadline.aborted) stop();
    else deadline.addEventListener('abort', stop);
  });
  try {
    return await Promise.race([signed, late]);
  } finally {
    deadline.removeEventListener('abort', stop);
  }
}

/**
 * The failure reason for an error of the signer.
 *
 * @returns `undefined` for other errors
 */
export function signingFailure(error: unknown): FailureReason | undefined {
  // A key provider that is unavailable has no key for now.
  if (isWebhookError(error, 'no_signing_key') || isWebhookError(error, 'keys_unavailable')) {
    return 'no_signing_key';
  }
  // Retried until the operator corrects the sealing keys, so that no event is lost.
  if (isWebhookError(error, 'sealed_secret_unreadable')) return 'no_signing_key';
  if (isWebhookError(error, 'endpoint_unreadable')) return 'no_signing_key';
  // The provider's current key does not fit the wire format; a later one may.
  if (isWebhookError(error, 'invalid_token')) return 'no_signing_key';
  if (!isWebhookError(error, 'signing_failed')) return undefined;
  return error.cause === 'aborted' ? 'aborted' : 'signing_failed';
}

function tooLate({ reason }: AttemptDeadline): WebhookSigningError {
  return new WebhookSigningError(
    'signing_failed',
    'the signer took longer than the timeout of the attempt; raise the timeout of the endpoint, or make the signer faster.',
    { cause: reason },
  );
}
