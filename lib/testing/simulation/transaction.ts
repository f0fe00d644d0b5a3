import type { SimulatedProcess } from './simulated-process.js';
import type { Simulation } from './simulation.js';

/** Milliseconds after which a server notices that the client of a transaction is gone. */
const CLIENT_CHECK = 500;

type Listener = () => void;

/** An open transaction of a process on a server. */
export class Transaction {
  state: 'open' | 'committed' | 'rolled back' = 'open';
  /** Resolves when it ends. */
  readonly ended: Promise<void>;
  private readonly commitListeners: Listener[] = [];
  private readonly rollBackListeners: Listener[] = [];
  private readonly endListeners: Listener[] = [];

  constructor(readonly process: SimulatedProcess) {
    this.ended = new Promise((resolve) => this.onEnd(resolve));
  }

  /** Whether its end changes anything. */
  get hasWork(): boolean {
    return this.commitListeners.length + this.rollBackListeners.length > 0;
  }

  onCommit(listener: Listener): void {
    this.commitListeners.push(listener);
  }

  onRollBack(listener: Listener): void {
    this.rollBackListeners.push(listener);
  }

  /** Listens for the end, however it ends. */
  onEnd(listener: Listener): void {
    this.endListeners.push(listener);
  }

  /** @throws if it has ended otherwise before */
  commit(): void {
    if (this.state !== 'open') throw new Error('the transaction was rolled back');
    this.end('committed', this.commitListeners);
  }

  rollBack(): void {
    if (this.state === 'open') this.end('rolled back', this.rollBackListeners);
  }

  /** Rolls back once its client is gone, as a server does. */
  watch(simulation: Simulation): void {
    if (this.state !== 'open') return;
    if (!this.process.alive) this.rollBack();
    else simulation.after(CLIENT_CHECK, undefined, () => this.watch(simulation));
  }

  private end(state: 'committed' | 'rolled back', listeners: readonly Listener[]): void {
    this.state = state;
    for (const listener of [...listeners, ...this.endListeners]) listener();
  }
}
