import { newestFirst } from '../queue/delivery-list.js';

/** Who did something: a user of the console, a user of the portal, or the library itself. */
export type ActivityOrigin = 'operator' | 'partner' | 'system';

/** What was done to an endpoint or a delivery, as it is stored. JSON values only. */
export interface StoredActivity {
  readonly id: string;
  /** Epoch milliseconds; it never changes. */
  readonly at: number;
  readonly by: ActivityOrigin;
  /** Such as `endpoint.disable`. */
  readonly action: string;
  /** The tenant that may see it; absent for what only operators see. */
  readonly tenant?: string;
  /** Id of the endpoint or delivery; absent for several. */
  readonly target?: string;
  /** Everything else: what an entry has depends on its action. */
  readonly details: Readonly<Record<string, unknown>>;
  /** 1 at first; every change adds one. */
  readonly version: number;
}

/** Selects entries; members that are left out match everything. */
export interface ActivityFilter {
  readonly tenant?: string | undefined;
  readonly action?: string | undefined;
  readonly target?: string | undefined;
}

/** A page: at most `limit` entries after `after`. */
export interface ActivityPageRequest {
  readonly after?: { readonly at: number; readonly id: string } | undefined;
  readonly limit: number;
}

/**
 * Stores what users and the library did to endpoints and deliveries: {@link EndpointStore.activity}.
 *
 * Concurrent changes do not overwrite each other: `record` accepts an id once, and `replace` succeeds only against the previous
 * version. So of several processes that record the same id, one succeeds.
 *
 * A store that cannot be reached throws {@link WebhookStoreError} `store_unavailable`.
 */
export abstract class ActivityStore {
  /**
   * Keeps at least the newest 1,000 entries of each action `by` the partners of each tenant, and may delete older ones.
   *
   * @returns `false`, with nothing changed, if the id exists
   */
  abstract record(entry: StoredActivity): Promise<boolean>;

  /**
   * Replaces the previous version (`entry.version - 1`).
   *
   * @returns `false`, with nothing changed, if another version is stored, or none
   */
  abstract replace(entry: StoredActivity): Promise<boolean>;

  /** Lists entries, newest first by `at`, then by id in descending order of code units. */
  abstract list(
    filter: ActivityFilter,
    page: ActivityPageRequest,
  ): Promise<readonly StoredActivity[]>;

  /**
   * Deletes the entries that are older than a time, in epoch milliseconds.
   *
   * @returns their number
   */
  abstract prune(before: number): Promise<number>;
}

/** Entries of each action of one tenant's users that a store keeps: a tenant must not fill it, nor push out what others did. */
export const MAX_OF_TENANT = 1_000;
/** Entries of each origin and action that are kept in memory. */
const MAX_ENTRIES = 1_000;

/** Keeps the last 1,000 entries of each action of operators, partners and the library each in this process's memory. */
export class MemoryActivityStore extends ActivityStore {
  private readonly entries = new Map<string, StoredActivity>();

  override async record(entry: StoredActivity): Promise<boolean> {
    if (this.entries.has(entry.id)) return false;
    this.entries.set(entry.id, entry);
    // Partners must not push out what operators or others did, nor what they did themselves, by repeating a harmless action.
    const own = [...this.entries.values()].filter(
      ({ by, action }) => by === entry.by && action === entry.action,
    );
    if (own.length <= MAX_ENTRIES) return true;
    const counts = new Map<string | undefined, number>();
    for (const { tenant } of own) counts.set(tenant, (counts.get(tenant) ?? 0) + 1);
    const most = Math.max(...counts.values());
    const oldest = own.find(({ by, tenant }) => by !== 'partner' || counts.get(tenant) === most);
    this.entries.delete(oldest!.id);
    return true;
  }

  override async replace(entry: StoredActivity): Promise<boolean> {
    if (this.entries.get(entry.id)?.version !== entry.version - 1) return false;
    this.entries.set(entry.id, entry);
    return true;
  }

  override async list(
    { tenant, action, target }: ActivityFilter,
    { after, limit }: ActivityPageRequest,
  ): Promise<readonly StoredActivity[]> {
    return [...this.entries.values()]
      .filter(
        (entry) =>
          (tenant === undefined || entry.tenant === tenant) &&
          (action === undefined || entry.action === action) &&
          (target === undefined || entry.target === target) &&
          (after === undefined || newestEntryFirst(entry, after) > 0),
      )
      .sort(newestEntryFirst)
      .slice(0, limit);
  }

  override async prune(before: number): Promise<number> {
    const old = [...this.entries.values()].filter(({ at }) => at < before);
    for (const { id } of old) this.entries.delete(id);
    return old.length;
  }
}

type Place = Pick<StoredActivity, 'at' | 'id'>;

function newestEntryFirst(a: Place, b: Place): number {
  return newestFirst({ createdAt: a.at, id: a.id }, { createdAt: b.at, id: b.id });
}
