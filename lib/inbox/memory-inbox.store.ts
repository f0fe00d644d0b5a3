import {
  type InboxBounds,
  type InboxEntry,
  type InboxFilter,
  type InboxSettlement,
  InboxStore,
  inboxBounds,
  matchesInboxFilter,
  maxDuplicates,
} from './inbox-store.js';
import { readOptions } from '../options/read-options.js';
import { object } from '../options/rules.js';

const BOUNDS = object<InboxBounds>()(inboxBounds(1_000, 500));

/**
 * Stores the last received requests in memory. They are lost when the process ends, and other processes do not see them.
 */
export class MemoryInboxStore extends InboxStore {
  override readonly durable = false;

  private readonly accepted: EntryRing;
  private readonly duplicates: EntryRing;
  private readonly refused: EntryRing;
  /** Milliseconds. */
  private readonly keep: number | undefined;

  /**
   * @param bounds - `maxAccepted`, default 1,000; `maxRefused`, default 500; `keep`
   * @throws {@link WebhookConfigurationError}
   */
  constructor(bounds?: InboxBounds) {
    super();
    const { maxAccepted, maxRefused, keep } = readOptions(BOUNDS, bounds, 'MemoryInboxStore');
    this.accepted = new EntryRing(maxAccepted);
    this.duplicates = new EntryRing(maxDuplicates(maxAccepted));
    this.refused = new EntryRing(maxRefused);
    this.keep = keep;
  }

  override async deleteExpired(now: number): Promise<void> {
    if (this.keep === undefined) return;
    for (const ring of this.rings) ring.dropUntil(now - this.keep);
  }

  override async record(entries: readonly InboxEntry[]): Promise<void> {
    for (const entry of entries) this.ringFor(entry).add(entry);
  }

  override async settle(settlements: readonly InboxSettlement[]): Promise<readonly string[]> {
    const unknown = settlements.filter((settlement) => !this.accepted.settle(settlement));
    return [...new Set(unknown.map(({ deliveryId }) => deliveryId))];
  }

  override async find(id: string): Promise<InboxEntry | undefined> {
    const entry = this.accepted.get(id) ?? this.duplicates.get(id) ?? this.refused.get(id);
    return entry && { ...entry };
  }

  override async list(
    filter: InboxFilter,
    { after, limit }: { readonly after?: string | undefined; readonly limit: number },
  ): Promise<readonly InboxEntry[]> {
    return this.rings
      .flatMap((ring) => [...ring.entries()])
      .filter(
        (entry) => (after === undefined || entry.id < after) && matchesInboxFilter(entry, filter),
      )
      .sort((a, b) => (a.id < b.id ? 1 : -1))
      .slice(0, limit)
      .map(
        ({ headers: _headers, payload: _payload, explanation: _explanation, ...facts }) => facts,
      );
  }

  override async erase(filter: InboxFilter): Promise<number> {
    const counts = this.rings.map((ring) => {
      const matching = [...ring.entries()].filter((entry) => matchesInboxFilter(entry, filter));
      for (const entry of matching) ring.drop(entry);
      return matching.length;
    });
    return counts.reduce((sum, count) => sum + count, 0);
  }

  override async counts(): Promise<{ readonly accepted: number; readonly refused: number }> {
    return { accepted: this.accepted.size + this.duplicates.size, refused: this.refused.size };
  }

  private get rings(): readonly EntryRing[] {
    return [this.accepted, this.duplicates, this.refused];
  }

  private ringFor({ outcome }: InboxEntry): EntryRing {
    if (outcome === 'refused') return this.refused;
    return outcome === 'duplicate' ? this.duplicates : this.accepted;
  }
}

/** The last entries of one kind. */
class EntryRing {
  private readonly byId = new Map<string, InboxEntry>();
  /** Id of the newest entry of each queued event. */
  private readonly byDelivery = new Map<string, string>();

  constructor(private readonly capacity: number) {}

  get size(): number {
    return this.byId.size;
  }

  get(id: string): InboxEntry | undefined {
    return this.byId.get(id);
  }

  entries(): Iterable<InboxEntry> {
    return this.byId.values();
  }

  add(entry: InboxEntry): void {
    const { id, deliveryId } = entry;
    if (this.byId.has(id)) return;
    this.byId.set(id, entry);
    if (deliveryId !== undefined) this.byDelivery.set(deliveryId, id);
    const [oldest] = this.byId.values();
    if (this.byId.size > this.capacity) this.drop(oldest!);
  }

  /** Drops the entries until a time. */
  dropUntil(at: number): void {
    for (const entry of this.byId.values()) if (entry.at <= at) this.drop(entry);
  }

  /** @returns whether the event has an entry */
  settle({ deliveryId, outcome, runs, isRepeated }: InboxSettlement): boolean {
    const id = this.byDelivery.get(deliveryId);
    if (id === undefined) return false;
    const entry = this.byId.get(id)!;
    const isOlder = isRepeated === true && entry.runs !== undefined && entry.runs >= runs;
    const hasRun =
      outcome === 'queued' && runs === 0 && !['dead', 'queued'].includes(entry.outcome);
    if (!isOlder && !hasRun) this.byId.set(id, { ...entry, outcome, runs });
    return true;
  }

  drop({ id, deliveryId }: InboxEntry): void {
    this.byId.delete(id);
    if (deliveryId !== undefined && this.byDelivery.get(deliveryId) === id) {
      this.byDelivery.delete(deliveryId);
    }
  }
}
