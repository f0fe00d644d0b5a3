import { type CancelWake, repeat, repeatInBatches } from '../clock/webhook-clock.js';
import { RETENTION_INTERVAL } from '../queue/queue-options.js';
import { isOutage } from './database-failure.js';
import type { QueueConnection } from './queue-connection.js';
import { DELETED_AT_ONCE, MERGED_AT_ONCE, UpkeepStatements } from './upkeep-statements.js';

/** Milliseconds between two merges of counts. */
const MERGE_INTERVAL = 5_000;

/** Milliseconds between two pages in which unused keys, or unused limits, are looked for. */
const UNUSED_INTERVAL = 60_000;

/** Before the first key, and before the first lane. */
const FIRST_KEY: readonly string[] = ['', ''];
const FIRST_LIMIT: readonly string[] = [''];

/**
 * Deletes what is past its retention, or not used any more, and merges counts. Each consumer does so, in small batches; what one
 * misses, the next one makes up for. It starts when it is constructed.
 */
export class QueueUpkeep {
  private readonly statements: UpkeepStatements;
  private readonly timers: readonly CancelWake[];
  private hasEnded = false;
  /** The ends of the pages in which unused keys and limits were looked for last. */
  private keysUntil = FIRST_KEY;
  private limitsUntil = FIRST_LIMIT;

  /** @param onFailure - called for each failure that is no outage */
  constructor(
    private readonly connection: QueueConnection,
    onFailure: (error: unknown) => void,
  ) {
    this.statements = new UpkeepStatements(connection.schema);
    const { clock, keepDelivered, keepDead, keepPayloads } = connection.options;
    const reporting = async <T>(work: () => Promise<T>): Promise<T> => {
      try {
        return await work();
      } catch (error) {
        // Claims report an outage.
        if (!isOutage(error) && !this.hasEnded) onFailure(error);
        throw error;
      }
    };
    const inBatches = (batch: () => Promise<boolean>): CancelWake =>
      repeatInBatches(clock, RETENTION_INTERVAL, async () => reporting(batch));
    this.timers = [
      inBatches(async () => this.deleteOld('deleteDelivered', keepDelivered)),
      ...(keepDead === undefined
        ? []
        : [inBatches(async () => this.deleteOld('deleteDead', keepDead))]),
      ...(keepPayloads === undefined
        ? []
        : [inBatches(async () => this.dropPayloads(keepPayloads))]),
      repeat(clock, UNUSED_INTERVAL, async () => reporting(async () => this.deleteUnused())),
      repeat(clock, MERGE_INTERVAL, async () => reporting(async () => this.mergeCounts())),
    ];
  }

  end(): void {
    this.hasEnded = true;
    for (const cancel of this.timers) cancel();
  }

  /** @returns milliseconds until the next batch */
  private async mergeCounts(): Promise<number> {
    const [row] = await this.connection.query(this.statements.merge, [this.connection.name]);
    if (Number(row!['emptied']) > 0) await this.deleteEmptyCounts();
    return Number(row!['merged']) < MERGED_AT_ONCE ? MERGE_INTERVAL : 0;
  }

  /** Deletes a batch. @returns whether there is more */
  private async deleteOld(which: 'deleteDelivered' | 'deleteDead', keep: number): Promise<boolean> {
    const query = this.statements[which](this.connection.name, keep, this.connection.now);
    const [row] = await this.connection.queryInIndexOrder(...query);
    const gone = Number(row!['gone']);
    const hasMore = gone >= DELETED_AT_ONCE;
    if (gone > 0 && !hasMore) await this.deleteEmptyCounts();
    return hasMore;
  }

  private async deleteEmptyCounts(): Promise<void> {
    await this.connection.query(this.statements.deleteEmptyCounts, [this.connection.name]);
  }

  /** Drops a batch of payloads. @returns whether there is more */
  private async dropPayloads(keep: number): Promise<boolean> {
    const values = [this.connection.name, this.connection.now, keep];
    const [row] = await this.connection.queryInIndexOrder(this.statements.dropPayloads, values);
    return Number(row!['seen']) >= DELETED_AT_ONCE;
  }

  /** Looks for unused keys and limits in the next page of each, and starts again after the last page. */
  private async deleteUnused(): Promise<void> {
    this.keysUntil = await this.deleteUnusedOf(
      this.statements.deleteUnusedKeys,
      this.keysUntil,
      FIRST_KEY,
    );
    this.limitsUntil = await this.deleteUnusedOf(
      this.statements.deleteUnusedLimits,
      this.limitsUntil,
      FIRST_LIMIT,
    );
  }

  /** @returns the end of the page */
  private async deleteUnusedOf(
    statement: string,
    after: readonly string[],
    first: readonly string[],
  ): Promise<readonly string[]> {
    const values = [this.connection.name, this.connection.now, ...after];
    const [row] = await this.connection.queryInIndexOrder(statement, values);
    const { seen, lane, ordering_key: key } = row!;
    if (Number(seen) < DELETED_AT_ONCE) return first;
    return (key === undefined ? [lane] : [lane, key]) as string[];
  }
}
