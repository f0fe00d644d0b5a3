import type { RememberedDelivery } from './delivery-memory.js';
import type { WebhookDelivery } from './webhook-delivery.js';

/** Milliseconds for which durable queues remember the last number of an ordering key, and the state of limits, without use. */
export const KEPT_UNUSED = 30 * 24 * 3_600_000;

/** Keys without unfinished deliveries whose last number is remembered. */
const MAX_IDLE_KEYS = 10_000;

/** Whether a delivery that is recorded is numbered, and waits for the earlier ones of its key. */
export function takesTurn({ orderingKey, sequence }: WebhookDelivery): boolean {
  return orderingKey !== undefined && sequence === undefined;
}

interface KeyTurns {
  /** The deliveries that hold the key or wait for it, in their order. */
  readonly entries: Set<RememberedDelivery>;
  lastNumber: number;
}

/** The order of the deliveries with an ordering key: who holds its key, and who waits for it. */
export class KeyOrder {
  private readonly keys = new Map<string, KeyTurns>();

  /** @param onTurn - called with a delivery whose turn comes after it has waited */
  constructor(private readonly onTurn: (entry: RememberedDelivery) => void) {}

  /** Numbers a delivery with an ordering key, and adds it at the end of its key's order, unless it has had its turn before. */
  enter(entry: RememberedDelivery, now: number): void {
    const { delivery, lane } = entry;
    if (!takesTurn(delivery)) return;
    // No lane contains a line break.
    const key = `${lane}\n${delivery.orderingKey}`;
    let turns = this.keys.get(key);
    if (turns === undefined) {
      // A series starts with the time, so that numbers never fall, even if the last one was forgotten.
      turns = { entries: new Set(), lastNumber: now };
      this.keys.set(key, turns);
    }
    entry.delivery = { ...delivery, sequence: ++turns.lastNumber };
    entry.turn = { key, isWaiting: turns.entries.size > 0 };
    turns.entries.add(entry);
  }

  /** Ends the turn of a delivery, and starts the next one. */
  leave(entry: RememberedDelivery): void {
    if (entry.turn === undefined) return;
    const { key } = entry.turn;
    const turns = this.keys.get(key)!;
    entry.turn = undefined;
    turns.entries.delete(entry);
    const [next] = turns.entries;
    if (next === undefined) this.rest(key, turns);
    else if (next.turn!.isWaiting) {
      next.turn = { key, isWaiting: false };
      this.onTurn(next);
    }
  }

  /** Moves an idle key to the end of the map, and forgets those that have been idle the longest. */
  private rest(key: string, turns: KeyTurns): void {
    this.keys.delete(key);
    this.keys.set(key, turns);
    if (this.keys.size <= MAX_IDLE_KEYS) return;
    for (const [name, { entries }] of this.keys) {
      if (entries.size > 0) continue;
      this.keys.delete(name);
      if (this.keys.size <= MAX_IDLE_KEYS) return;
    }
  }
}
