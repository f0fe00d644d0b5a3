import type { WebhookClock } from '../clock/webhook-clock.js';
import type { Settlement } from './job-statements.js';

/** Milliseconds between two tries while the database is away. */
const PAUSE = 1_000;

interface Waiting {
  readonly settlement: Settlement;
  readonly done: () => void;
}

/**
 * Writes what became of attempts, as many at once as have gathered while the last were written.
 *
 * While the database is away it tries again, for as long as the lease would have held: afterwards the jobs belong to
 * another process, and the write would change nothing.
 */
export class Settlements {
  private waiting: Waiting[] = [];
  private writing = false;
  private closed = false;

  constructor(
    private readonly write: (settlements: readonly Settlement[]) => Promise<void>,
    private readonly clock: WebhookClock,
    private readonly lease: number,
  ) {}

  /** Resolves when it is written, or given up: its job then runs again when its lease has ended. */
  async settle(settlement: Settlement): Promise<void> {
    return new Promise((done) => {
      this.waiting.push({ settlement, done });
      if (!this.writing) void this.drain();
    });
  }

  /** Tries nothing a second time from now on. */
  close(): void {
    this.closed = true;
  }

  private async drain(): Promise<void> {
    this.writing = true;
    while (this.waiting.length > 0) {
      const batch = this.waiting;
      this.waiting = [];
      await this.persist(batch.map(({ settlement }) => settlement));
      for (const { done } of batch) done();
    }
    this.writing = false;
  }

  private async persist(settlements: readonly Settlement[]): Promise<void> {
    const end = this.clock.now() + this.lease;
    for (;;) {
      try {
        return await this.write(settlements);
      } catch {
        if (this.closed || this.clock.now() + PAUSE >= end) return;
      }
      const again = this.clock.now() + PAUSE;
      await new Promise<void>((resolve) => this.clock.wakeAt(again, resolve));
    }
  }
}
