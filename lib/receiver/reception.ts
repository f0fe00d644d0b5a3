import { WebhookReplayError, WebhookStoreError } from '../errors/webhook.error.js';
import type { CancelWake, WebhookClock } from '../clock/webhook-clock.js';
import type { ReplayReservation, ReplayStore } from '../replay/replay-store.js';
import type { RequestBody } from '../request/body.js';
import type { ReceiverReporter } from './receiver.reporter.js';
import { internalsOf, type WebhookEvent } from './webhook-event.js';

/** Milliseconds for which recording a handled event is retried. Senders usually wait 15 s or longer for an answer. */
const RECORDING_TIME = 9_000;
/** Milliseconds between two attempts; each pause is twice as long as the one before. */
const SHORTEST_PAUSE = 100;
const LONGEST_PAUSE = 1_000;

/** What a reception needs of its receiver. */
interface ReceptionStore {
  readonly replayStore: ReplayStore;
  readonly leases: LeaseKeeper;
  readonly clock: WebhookClock;
}

/**
 * How far an event is when it is recorded: handled or queued before its answer, acknowledged before its record, or handled in a run
 * from the queue.
 */
export type RecordedAs = 'handled' | 'queued' | 'acknowledged' | 'run';

/**
 * A verified event that is being handled, and its reservation in the replay store.
 *
 * {@link run} handles and settles it. A route without `@WebhookRoute()` has no handler to wait for: its guard calls one of
 * {@link complete}, {@link fail} and {@link abandon} instead.
 */
export class WebhookReception {
  private state: 'open' | 'recording' | 'settled';
  private isHandlerRunning = false;
  private hasHandlerFailed = false;
  private isCommitted = false;
  private lost: WebhookReplayError | undefined;
  private ended: Promise<unknown> | undefined;

  /**
   * @param reservation - absent for a duplicate of an event that was handled before
   * @param body - removed when the event is settled
   */
  constructor(
    readonly event: WebhookEvent,
    private readonly reservation: ReplayReservation | undefined,
    private readonly store: ReceptionStore,
    private readonly body: RequestBody,
    private readonly reporter: ReceiverReporter,
  ) {
    this.state = reservation === undefined ? 'settled' : 'open';
    if (reservation === undefined) {
      body.remove();
    } else {
      store.leases.hold(reservation);
      internalsOf(event).reservation = this;
    }
  }

  /** The key that all copies of the event share. */
  get identity(): string {
    return this.reservation!.claim.key;
  }

  /** Whether the event was handled before, so that it is only acknowledged. */
  get duplicate(): boolean {
    return this.reservation === undefined;
  }

  get unsettled(): boolean {
    return this.state !== 'settled';
  }

  /** Whether {@link run} has started and not ended. */
  get running(): boolean {
    return this.isHandlerRunning;
  }

  /** Resolves when {@link run} has ended, or at once if it never started. */
  async idle(): Promise<void> {
    await this.ended;
  }

  /** Whether the handler failed, as opposed to something before or after it. */
  get handlerFailed(): boolean {
    return this.hasHandlerFailed;
  }

  /** Whether the handler put the record into its own transaction; only the store knows how that ended. */
  get committed(): boolean {
    return this.isCommitted;
  }

  /** The error that `event.commit(tx)` threw because the lease had ended. */
  get leaseLost(): WebhookReplayError | undefined {
    return this.lost;
  }

  /**
   * Handles the event and settles it: it is recorded if the work succeeds, and freed for another attempt if the work fails, the
   * lease is lost or the store does not record it.
   *
   * @throws the error of the work; {@link WebhookReplayError} `lease_lost`, also if the work ignored it: it may have rolled back,
   *   and no one repeats an acknowledged event; {@link WebhookStoreError} `store_unavailable` if the event cannot be recorded
   */
  async run<T>(work: () => T | Promise<T>, as: RecordedAs = 'handled'): Promise<T> {
    const operation = internalsOf(this.event).receiving;
    const run = async (): Promise<T> => this.runAndSettle(work, as);
    this.isHandlerRunning = true;
    const running = operation === undefined ? run() : operation.run(run);
    this.ended = running.catch(() => undefined);
    return running;
  }

  private async runAndSettle<T>(work: () => T | Promise<T>, as: RecordedAs): Promise<T> {
    let value: T;
    try {
      value = await work();
      if (this.lost !== undefined) throw this.lost;
    } catch (error) {
      this.hasHandlerFailed = true;
      await this.fail();
      throw this.lost ?? error;
    }
    await this.complete(as);
    return value;
  }

  /**
   * Records the event as handled, unless the handler did so itself. An event that cannot be recorded is freed.
   *
   * @throws {@link WebhookStoreError} `store_unavailable` if the event cannot be recorded
   */
  async complete(as: RecordedAs): Promise<void> {
    const { reservation } = this;
    this.body.remove();
    if (this.state !== 'open' || reservation === undefined) return;
    if (this.isCommitted) return this.settle();
    this.state = 'recording';
    try {
      if (!(await this.record(reservation))) this.reporter.takenOver(this.event);
      this.settle();
    } catch (error) {
      this.state = 'open';
      this.reporter.unrecorded(this.event, as);
      await this.fail();
      throw error;
    }
  }

  /**
   * Frees the event, so that it can be sent again. If the store fails, the end of the lease frees it.
   *
   * This also applies after the handler put the record into its own transaction: the store frees what was rolled back, and keeps
   * what was committed.
   */
  async fail(): Promise<void> {
    const { reservation } = this;
    const isOpen = this.state === 'open';
    this.settle();
    if (!isOpen || reservation === undefined) return;
    try {
      // What was committed stays recorded; what was rolled back is free now.
      if (await this.store.replayStore.release(reservation)) this.isCommitted = false;
    } catch {
      // The end of the lease frees it.
    }
  }

  /** Leaves the event to its lease, when it is unknown whether its handler is still running. */
  abandon(): void {
    this.settle();
  }

  /**
   * Records the event in the handler's own transaction.
   *
   * @throws {@link WebhookReplayError} `lease_lost`, `unsupported_option`
   */
  async commitIn(tx: unknown): Promise<void> {
    const { replayStore, leases } = this.store;
    const reservation = this.reservation!;
    if (replayStore.commitWith === undefined) {
      throw new WebhookReplayError(
        'unsupported_option',
        "the receiver's replay store cannot join a transaction: set replay.store to a PostgresReplayStore on the database of the transaction",
      );
    }
    if (this.state !== 'open') throw leaseLost();
    let recorded: boolean;
    try {
      this.isCommitted = true;
      // The lease is still extended: the answer may take longer than the lease lasts.
      recorded = await replayStore.commitWith(tx, reservation);
    } catch (error) {
      this.isCommitted = false;
      throw error;
    }
    // The entry is locked until the transaction ends, and an extension would wait for that.
    leases.drop(reservation);
    if (recorded) return;
    this.isCommitted = false;
    this.lost = leaseLost();
    throw this.lost;
  }

  /**
   * Records the event; a failing store is tried again for {@link RECORDING_TIME} while the lease is extended.
   *
   * @returns `false` if another process took the event over while it was being handled
   */
  private async record(reservation: ReplayReservation): Promise<boolean> {
    const { clock, replayStore } = this.store;
    const deadline = clock.now() + RECORDING_TIME;
    let current = reservation;
    for (let pause = SHORTEST_PAUSE; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      try {
        if (await replayStore.commit(current)) return true;
        // An outage longer than the lease has ended it: unless another process took the event since, it is reserved again.
        const verdict = await replayStore.reserve(reservation.claim);
        if (verdict.status !== 'reserved') return verdict.status === 'done';
        current = verdict.reservation;
        return await replayStore.commit(current);
      } catch (cause) {
        if (clock.now() + pause > deadline) {
          throw new WebhookStoreError(
            'store_unavailable',
            'the replay store did not record the event',
            { cause },
          );
        }
        await new Promise<void>((resolve) => void clock.wakeAt(clock.now() + pause, resolve));
      }
    }
  }

  private settle(): void {
    this.body.remove();
    this.state = 'settled';
    this.isHandlerRunning = false;
    if (this.reservation !== undefined) this.store.leases.drop(this.reservation);
  }
}

function leaseLost(): WebhookReplayError {
  return new WebhookReplayError(
    'lease_lost',
    'this handler no longer holds the lease of the event, or the event is recorded already: roll back; the sender repeats the event',
  );
}

/** Leases are extended after a quarter of their time: if two extensions fail, the third is still in time. */
const EXTENSIONS_PER_LEASE = 4;

/**
 * Extends the leases of events that are being handled, so that a slow handler is not taken for a crashed one. One timer serves all of
 * them; none is set while no event is being handled.
 */
export class LeaseKeeper {
  private readonly held = new Set<ReplayReservation>();
  /** Extensions without an answer yet. Weak, since a store may never answer. */
  private readonly extending = new WeakSet<ReplayReservation>();
  private cancel: CancelWake | undefined;

  constructor(
    private readonly store: ReplayStore,
    private readonly clock: WebhookClock,
    private readonly lease: number,
  ) {}

  hold(reservation: ReplayReservation): void {
    this.held.add(reservation);
    this.cancel ??= this.arm();
  }

  drop(reservation: ReplayReservation): void {
    this.held.delete(reservation);
  }

  private arm(): CancelWake {
    return this.clock.wakeAt(this.clock.now() + this.lease / EXTENSIONS_PER_LEASE, () => {
      this.cancel = undefined;
      void this.extendAll();
      if (this.held.size > 0) this.cancel = this.arm();
    });
  }

  private async extendAll(): Promise<void> {
    await Promise.allSettled([...this.held].map(async (reservation) => this.extend(reservation)));
  }

  private async extend(reservation: ReplayReservation): Promise<void> {
    // A hanging store would get one more call to answer when it recovers.
    if (this.extending.has(reservation)) return;
    this.extending.add(reservation);
    try {
      // A failure is retried at the next wake-up; the lease outlives two failures.
      await this.store.extend(reservation);
    } finally {
      this.extending.delete(reservation);
    }
  }
}
