// The replay store of the receivers, as a server with transactions; it survives the processes that use it.
import { MemoryReplayStore } from 'nestjs-webhook-token';
import { ReplayStore } from 'nestjs-webhook-token/ports';
import { ServerClock } from './processes.mjs';

/** Milliseconds, longer than any run: a locked entry does not expire. */
const WHILE_LOCKED = 1e9;

/** Committed entries, and the locks of open transactions. */
export class ReplayServer {
  #entries;
  /** By key: resolves when the transaction that locks the entry ends. */
  #locks = new Map();
  #owners = new Map();

  constructor(simulation) {
    this.simulation = simulation;
    this.#entries = new MemoryReplayStore({
      clock: new ServerClock(simulation),
      maxEntries: 1_000,
    });
  }

  async reserve(claim) {
    await this.#unlocked(claim.key);
    const verdict = await this.entries.reserve(claim);
    if (verdict.status === 'reserved') this.#owners.set(claim.key, verdict.reservation.owner);
    return verdict;
  }

  async extend(reservation) {
    return this.#ofLastOwner(reservation, () => this.entries.extend(reservation));
  }

  async commit(reservation) {
    return this.#ofLastOwner(reservation, () => this.entries.commit(reservation));
  }

  async release(reservation) {
    return this.#ofLastOwner(reservation, () => this.entries.release(reservation));
  }

  /** Locks the entry until the transaction ends. */
  async commitWith(tx, reservation) {
    const { claim, owner } = reservation;
    const lock = { claim: { ...claim, lease: WHILE_LOCKED }, owner };
    if (!(await this.#ofLastOwner(reservation, () => this.entries.extend(lock)))) return false;
    if (tx.state !== 'open') throw new Error('the transaction has ended');
    tx.onEnd(async () => {
      if (tx.state === 'committed') await this.entries.commit(reservation);
      else await this.entries.extend(reservation);
      this.#locks.delete(claim.key);
    });
    this.#locks.set(claim.key, tx.ended);
    tx.watch(this.simulation);
    return true;
  }

  get entries() {
    return this.#entries;
  }

  async #ofLastOwner({ claim, owner }, change) {
    await this.#unlocked(claim.key);
    const changed = await change();
    this.simulation.check(
      !changed || this.#owners.get(claim.key) === owner,
      'a lease has one owner that can record',
      () => 'an owner whose lease was taken over changed the entry',
    );
    return changed;
  }

  async #unlocked(key) {
    while (this.#locks.has(key)) await this.#locks.get(key);
  }
}

/** The replay store of one process. */
export class ReplayClient extends ReplayStore {
  scope = 'shared';

  constructor(process, server) {
    super();
    this.process = process;
    this.server = server;
  }

  reserve(claim) {
    return this.#call('reserve', claim);
  }

  extend(reservation) {
    return this.#call('extend', reservation);
  }

  commit(reservation) {
    return this.#call('commit', reservation);
  }

  release(reservation) {
    return this.#call('release', reservation);
  }

  commitWith(tx, reservation) {
    return this.process.call('replay', 'commitWith', () => this.server.commitWith(tx, reservation));
  }

  #call(operation, value) {
    return this.process.call('replay', operation, () => this.server[operation](value));
  }
}
