import type { Duration } from '../clock/duration.js';
import * as option from '../options/rules.js';

/** What happened to a received request. */
export type InboxOutcome =
  /** Its handlers succeeded. */
  | 'handled'
  /** Acknowledged; its handlers have not run yet, or run again. */
  | 'queued'
  /** A copy of an event that was handled before. */
  | 'duplicate'
  /** Acknowledged, but no handler matches it. */
  | 'unhandled'
  /** A handler failed; the sender repeats it. */
  | 'failed'
  /** Acknowledged, and its handlers failed in every run: a dead letter. */
  | 'dead'
  /** Refused; `code` says why. */
  | 'refused';

/** Headers and payload of a request, kept only if the application asks for it. */
export interface InboxContent {
  /** In order of arrival; without `Authorization`, cookies and other credentials. */
  readonly headers?: readonly (readonly [name: string, value: string])[] | undefined;
  /** The event's data as it was sent. */
  readonly payload?: { readonly contentType: string; readonly bytes: Uint8Array } | undefined;
}

/** A received request. It contains no token. */
export interface InboxEntry extends InboxContent {
  /** Ids sort by time of arrival, in the order of code units. */
  readonly id: string;
  /** When it was answered, in epoch milliseconds. */
  readonly at: number;
  readonly outcome: InboxOutcome;
  /** HTTP status of the answer. */
  readonly status: number;
  /** Code of the answer; absent on success, and where the application refused the request. */
  readonly code?: string;
  /** The code in words, as the sender got it. */
  readonly detail?: string;
  /** Name of the receiver; absent if none was chosen. */
  readonly receiver?: string;
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  /** Bytes of the body as announced; absent if the request did not say. */
  readonly size?: number;
  /** Whether the signature is valid. If not, the members below are unauthenticated. */
  readonly authenticated: boolean;
  /** The event's name. */
  readonly event?: string;
  readonly eventId?: string;
  readonly issuer?: string;
  readonly kid?: string;
  /** Id of the event in the receiver's queue, if it was queued. */
  readonly deliveryId?: string;
  /** Runs of its handlers from the queue. */
  readonly runs?: number;
  /** Why it was refused, step by step: a `WebhookExplanation`. JSON. */
  readonly explanation?: object;
}

/** A new outcome of a queued event. */
export interface InboxSettlement {
  readonly deliveryId: string;
  readonly outcome: 'handled' | 'queued' | 'dead';
  /** Runs of its handlers so far. */
  readonly runs: number;
  /** Its entry was unknown before, so that a later run may have been settled: then it is ignored. */
  readonly isRepeated?: true;
}

/** Selects entries; members that are left out match everything. */
export interface InboxFilter {
  readonly outcome?: InboxOutcome | undefined;
  /** Refused requests only, or all others. */
  readonly kind?: 'accepted' | 'refused' | undefined;
  readonly receiver?: string | undefined;
  readonly code?: string | undefined;
  readonly event?: string | undefined;
  readonly eventId?: string | undefined;
  readonly issuer?: string | undefined;
  /** Answered at this time or later, in epoch milliseconds. */
  readonly since?: number | undefined;
  /** Answered before this time, in epoch milliseconds. */
  readonly until?: number | undefined;
}

/** How many entries a store keeps at most, and how long; the oldest are dropped first. */
export interface InboxBounds {
  /** Requests that were neither refused nor duplicates; a tenth as many duplicates are kept besides, which never displace others. */
  readonly maxAccepted?: number | undefined;
  /** Refused requests, which anyone can send: they never displace the others. */
  readonly maxRefused?: number | undefined;
  /** How long an entry is kept at most, such as `'30d'`; default: until newer ones displace it. */
  readonly keep?: Duration | undefined;
}

/**
 * Stores the record of received requests: the port behind {@link WebhookInbox}. It is a record to look at, and no queue: the
 * receiver works without it, and never waits for it.
 *
 * - **Bounded.** It keeps the newest entries, up to a bound for refused requests, one for duplicates and one for all others, and none
 *   for longer than `keep`.
 * - **An entry is stored once.** `record` does not affect an id that is known.
 * - **Settlements follow.** `settle` changes the newest entry with a `deliveryId`, recorded by any process, and has no effect on
 *   an unknown one. Another process may not have written that entry yet, so a store that returns unknown ids gets their settlements
 *   again, within two minutes. A repeated one applies only if the entry has no runs, or fewer. `queued` with 0 runs, of a retried dead
 *   letter, applies only to an entry that is `dead` or `queued`: another process may have handled the event meanwhile.
 * - **Lists are ordered**: by id, newest first.
 *
 * A store that cannot be reached throws {@link WebhookStoreError} `store_unavailable`. Every implementation must pass the contract
 * suite of `nestjs-webhook-token/testing`.
 */
export abstract class InboxStore {
  /** Whether its entries survive this process. */
  abstract readonly durable: boolean;

  /**
   * Checks, at start-up and for the health indicator, that the store can be used: by default, it looks for an entry that does not
   * exist.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`, which is retried for some seconds; any other error fails start-up
   */
  async check(): Promise<void> {
    await this.find('start-up check');
  }

  /**
   * Deletes the entries that are older than the store keeps them; called once a minute. By default, it deletes nothing.
   *
   * @param now - epoch milliseconds
   */
  async deleteExpired(now: number): Promise<void> {
    void now;
  }

  /** Stores entries, and drops the oldest beyond the bounds. */
  abstract record(entries: readonly InboxEntry[]): Promise<void>;

  /**
   * Changes the outcome of queued events.
   *
   * @returns each `deliveryId` that has no entry; a store that only one process uses need not return them
   */
  abstract settle(settlements: readonly InboxSettlement[]): Promise<readonly string[] | void>;

  /** Finds an entry; `undefined` if it is unknown or was dropped. */
  abstract find(id: string): Promise<InboxEntry | undefined>;

  /**
   * Lists the entries that match a filter, without headers, payload and explanation.
   *
   * @param page - at most `limit` entries after the id `after`
   */
  abstract list(
    filter: InboxFilter,
    page: { readonly after?: string | undefined; readonly limit: number },
  ): Promise<readonly InboxEntry[]>;

  /**
   * Deletes the entries that match a filter, with their headers, payloads and explanations.
   *
   * @returns their number
   */
  abstract erase(filter: InboxFilter): Promise<number>;

  /** Counts the stored entries. */
  abstract counts(): Promise<{ readonly accepted: number; readonly refused: number }>;
}

/** How many duplicates a store keeps besides: copies of one event must not displace other events. */
export function maxDuplicates(maxAccepted: number): number {
  return Math.ceil(maxAccepted / 10);
}

export function matchesInboxFilter(
  entry: InboxEntry,
  { kind, since = -Infinity, until = Infinity, ...equal }: InboxFilter,
): boolean {
  if (entry.at < since || entry.at >= until) return false;
  if (kind !== undefined && (kind === 'refused') !== (entry.outcome === 'refused')) return false;
  return Object.entries(equal).every(
    ([name, value]) => value === undefined || entry[name as keyof typeof equal] === value,
  );
}

/** The rules of {@link InboxBounds}, with these defaults. */
export function inboxBounds(maxAccepted: number, maxRefused: number) {
  const entries = option.whole(1, undefined, 'of entries');
  return {
    maxAccepted: option.optional(entries, maxAccepted),
    maxRefused: option.optional(entries, maxRefused),
    keep: option.optional(option.duration({ min: '1m' })),
  };
}
