import { type CancelWake, repeat, restAfter } from '../clock/webhook-clock.js';
import type { KeyStatements } from './key-statements.js';
import type { QueueConnection } from './queue-connection.js';
import type { ResolvedDatabaseQueueOptions } from './queue-options.js';

/** Milliseconds between two searches for deliveries that wait for their ordering key although no other one holds it. */
const RELEASE_INTERVAL = 5_000;
/** Such a search takes at most 1 part in this many of the time. */
const RELEASE_SHARE = 50;

/** Lets the deliveries start that follow these, whose turn has ended. @returns whether there are any */
export async function releaseNext(
  connection: QueueConnection,
  statements: KeyStatements,
  { name }: Pick<ResolvedDatabaseQueueOptions, 'name'>,
  seqs: readonly string[],
): Promise<boolean> {
  const values = [name, JSON.stringify(seqs), connection.now];
  return (await connection.query(statements.releaseNext, values)).length > 0;
}

/** Lets the next delivery of an ordering key start when the turn of the one before it has ended. */
export class KeyTurns {
  private readonly endSearches: CancelWake;

  /** @param onReleased - called when deliveries can start, with those of `limitedLanes` among their lanes */
  constructor(
    private readonly connection: QueueConnection,
    private readonly statements: KeyStatements,
    private readonly options: ResolvedDatabaseQueueOptions,
    private readonly onReleased: (limitedLanes?: readonly string[]) => void,
  ) {
    this.endSearches = repeat(options.clock, RELEASE_INTERVAL, async () => this.releaseAll());
  }

  /**
   * Lets the deliveries start that follow these, whose turn has ended.
   *
   * @param limitedLanes - those among their lanes
   */
  async releaseNext(seqs: readonly string[], limitedLanes: readonly string[]): Promise<void> {
    const { connection, statements, options } = this;
    if (await releaseNext(connection, statements, options, seqs)) this.onReleased(limitedLanes);
  }

  /**
   * Makes up for a process that died before {@link releaseNext}, and for transactions that were open meanwhile.
   *
   * @returns milliseconds until the next search
   */
  async releaseAll(): Promise<number> {
    const { clock, name } = this.options;
    const start = clock.now();
    const released = await this.connection.query(this.statements.releaseAll, [
      name,
      this.connection.now,
    ]);
    if (released.length > 0) this.onReleased();
    return Math.max(RELEASE_INTERVAL, restAfter(clock.now() - start, RELEASE_SHARE));
  }

  /** Ends the searches. */
  end(): void {
    this.endSearches();
  }
}
