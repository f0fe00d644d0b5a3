/** Milliseconds after which a server notices that the client of a transaction is gone. */
const CLIENT_CHECK = 500;

/** An open transaction of a process on a server. */
export class Transaction {
  state = 'open';
  /** Resolves when it ends. */
  ended;
  #commitListeners = [];
  #endListeners = [];

  constructor(process) {
    this.process = process;
    this.ended = new Promise((resolve) => this.onEnd(resolve));
  }

  /** Whether a commit changes anything. */
  get hasWork() {
    return this.#commitListeners.length > 0;
  }

  onCommit(listener) {
    this.#commitListeners.push(listener);
  }

  /** Listens for the end, however it ends. */
  onEnd(listener) {
    this.#endListeners.push(listener);
  }

  /** @throws if it has ended otherwise before */
  commit() {
    if (this.state !== 'open') throw new Error('the transaction was rolled back');
    this.#end('committed', [...this.#commitListeners, ...this.#endListeners]);
  }

  rollBack() {
    if (this.state === 'open') this.#end('rolled back', this.#endListeners);
  }

  /** Rolls back once its client is gone, as a server does. */
  watch(simulation) {
    if (this.state !== 'open') return;
    if (!this.process.alive) this.rollBack();
    else simulation.after(CLIENT_CHECK, undefined, () => this.watch(simulation));
  }

  #end(state, listeners) {
    this.state = state;
    for (const listener of listeners) listener();
  }
}
