import { MemoryReplayStore } from '../../replay/memory-replay.store.js';
import {
  ReplayStore,
  type ReplayClaim,
  type ReplayReservation,
  type ReplayVerdict,
} from '../../replay/replay-store.js';
import { SimulatedClock, type SimulatedProcess } from './simulated-process.js';
import type { Simulation } from './simulation.js';
import type { Transaction } from './transaction.js';

/** Milliseconds, longer than any run: a locked entry does not expire. */
const WHILE_LOCKED = 1e9;

/** The replay store of the receivers, as a server with transactions; it survives the processes that use it. */
export class ReplayServer {
  /** Committed entries. */
  readonly entries: ReplayStore;
  /** By key: resolves when the transaction that locks the entry ends. */
  private readonly locks = new Map<string, Promise<void>>();
  private readonly owners = new Map<string, string>();
  /** Keys of the events that were recorded in a transaction. */
  private readonly committed = new Set<string>();

  constructor(readonly simulation: Simulation) {
    this.entries = this.createEntries();
  }

  async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    await this.unlocked(claim.key);
    const verdict = await this.entries.reserve(claim);
    if (verdict.status === 'reserved') this.owners.set(claim.key, verdict.reservation.owner);
    return verdict;
  }

  async extend(reservation: ReplayReservation): Promise<boolean> {
    return this.ofLastOwner(reservation, () => this.entries.extend(reservation));
  }

  async commit(reservation: ReplayReservation): Promise<boolean> {
    return this.ofLastOwner(reservation, () => this.entries.commit(reservation));
  }

  async release(reservation: ReplayReservation): Promise<boolean> {
    return this.ofLastOwner(reservation, () => this.entries.release(reservation));
  }

  /** Locks the entry until the transaction ends. */
  async commitWith(tx: Transaction, reservation: ReplayReservation): Promise<boolean> {
    const { claim, owner } = reservation;
    const lock = { claim: { ...claim, lease: WHILE_LOCKED }, owner };
    if (!(await this.ofLastOwner(reservation, () => this.entries.extend(lock)))) return false;
    if (tx.state !== 'open') {
      await this.entries.extend(reservation);
      throw new Error('the transaction has ended');
    }
    tx.onCommit(() => {
      const isFirst = !this.committed.has(claim.key);
      this.simulation.check(
        isFirst,
        'an effect with event.commit(tx) happens once',
        () => 'a second transaction with the record of the same event was committed',
      );
      this.committed.add(claim.key);
    });
    tx.onEnd(() => void this.unlock(tx, reservation));
    this.locks.set(claim.key, tx.ended);
    tx.watch(this.simulation);
    return true;
  }

  protected createEntries(): ReplayStore {
    const clock = new SimulatedClock(this.simulation);
    return new MemoryReplayStore({ clock, maxEntries: 1_000 });
  }

  private async unlock({ state }: Transaction, reservation: ReplayReservation): Promise<void> {
    if (state === 'committed') await this.entries.commit(reservation);
    else await this.entries.extend(reservation);
    this.locks.delete(reservation.claim.key);
  }

  private async ofLastOwner(
    { claim, owner }: ReplayReservation,
    change: () => Promise<boolean>,
  ): Promise<boolean> {
    await this.unlocked(claim.key);
    const changed = await change();
    this.simulation.check(
      !changed || this.owners.get(claim.key) === owner,
      'a lease has one owner that can record',
      () => 'an owner whose lease was taken over changed the entry',
    );
    return changed;
  }

  private async unlocked(key: string): Promise<void> {
    while (this.locks.has(key)) await this.locks.get(key);
  }
}

/** The replay store of one process. */
export class ReplayClient extends ReplayStore {
  override readonly scope = 'shared';

  /** @param transactionOf - the transaction on the server; `undefined` if its end is not known, so that it records at once */
  constructor(
    private readonly process: SimulatedProcess,
    private readonly server: ReplayServer,
    private readonly transactionOf: (tx: unknown) => Transaction | undefined,
  ) {
    super();
  }

  override reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    return this.process.call('replay', 'reserve', () => this.server.reserve(claim));
  }

  override extend(reservation: ReplayReservation): Promise<boolean> {
    return this.process.call('replay', 'extend', () => this.server.extend(reservation));
  }

  override commit(reservation: ReplayReservation): Promise<boolean> {
    return this.process.call('replay', 'commit', () => this.server.commit(reservation));
  }

  override release(reservation: ReplayReservation): Promise<boolean> {
    return this.process.call('replay', 'release', () => this.server.release(reservation));
  }

  override commitWith(tx: unknown, reservation: ReplayReservation): Promise<boolean> {
    return this.process.call('replay', 'commitWith', () => {
      const transaction = this.transactionOf(tx);
      if (transaction === undefined) return this.server.commit(reservation);
      return this.server.commitWith(transaction, reservation);
    });
  }
}
