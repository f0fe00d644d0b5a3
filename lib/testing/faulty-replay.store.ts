import {
  ReplayStore,
  type ReplayClaim,
  type ReplayReservation,
  type ReplayVerdict,
} from '../replay/replay-store.js';

/** A point at which a delivery waits. */
export interface Stall {
  /** Resolves when the delivery waits. */
  readonly reached: Promise<void>;
  resume(): void;
}

/**
 * A replay store that fails in scripted ways: its process crashes, or loses a lease. Everything else is done by the
 * application's own store, so that its atomicity and `commitWith` are tested too.
 */
export class FaultyReplayStore extends ReplayStore {
  override readonly scope: ReplayStore['scope'];
  override commitWith?: (tx: unknown, reservation: ReplayReservation) => Promise<boolean>;

  private losesRecord = false;
  /** What follows a granted reservation. */
  private onReserved: (() => Promise<void>) | undefined;
  private takeovers = 0;

  constructor(private readonly store: ReplayStore) {
    super();
    this.scope = store.scope;
    // Receivers ask whether the method exists.
    if (store.commitWith !== undefined) {
      this.commitWith = async (tx, reservation) => {
        this.losesRecord = false;
        return store.commitWith!(tx, reservation);
      };
    }
  }

  /** The next event is handled, but not recorded; its lease ends, and it can be reserved again. */
  loseNextRecord(): void {
    this.losesRecord = true;
  }

  /** The next reservation loses its lease at once, and its handler starts when the test resumes it. */
  stallNextReservation(): Stall {
    const { stall, wait } = makeStall();
    this.takeovers = 1;
    this.onReserved = async () => {
      this.onReserved = undefined;
      await wait();
    };
    return stall;
  }

  /** The next two reservations of an event are both granted, and their handlers start together. */
  grantNextReservationTwice(): Stall {
    const { stall, wait } = makeStall();
    this.takeovers = 1;
    let granted = 0;
    this.onReserved = async () => {
      granted++;
      if (granted === 1) return wait();
      this.onReserved = undefined;
      stall.resume();
    };
    return stall;
  }

  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    const verdict = await this.store.reserve(claim);
    if (verdict.status !== 'reserved' || this.onReserved === undefined) return verdict;
    if (this.takeovers-- > 0) await this.store.release(verdict.reservation);
    await this.onReserved();
    return verdict;
  }

  override async commit(reservation: ReplayReservation): Promise<boolean> {
    if (!this.losesRecord) return this.store.commit(reservation);
    this.losesRecord = false;
    await this.store.release(reservation);
    return true;
  }

  override async extend(reservation: ReplayReservation): Promise<boolean> {
    return this.store.extend(reservation);
  }

  override async release(reservation: ReplayReservation): Promise<boolean> {
    return this.store.release(reservation);
  }
}

function makeStall(): { stall: Stall; wait: () => Promise<void> } {
  let resume = (): void => {};
  let reach = (): void => {};
  const resumed = new Promise<void>((resolve) => (resume = resolve));
  const reached = new Promise<void>((resolve) => (reach = resolve));
  const wait = async (): Promise<void> => {
    reach();
    await resumed;
  };
  return { stall: { reached, resume }, wait };
}
