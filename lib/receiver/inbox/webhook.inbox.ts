import { Inject, Injectable } from '@nestjs/common';
import type { InboxEntry, InboxFilter, InboxOutcome, InboxStore } from '../../inbox/inbox-store.js';
import { invalidOption, readStrictly } from '../../options/strict-options.js';
import type { ReceivedDelivery } from '../../queue/webhook-delivery.interface.js';
import type { DeadDelivery, WebhookQueue } from '../../queue/webhook-queue.js';
import { isIdentifier } from '../../token/identifier.js';
import { findReceiver } from '../find-receiver.js';
import type { ResolvedReceivers } from '../receiver-options.interface.js';
import { WEBHOOK_RECEIVERS } from '../receiver.constants.js';
import { inboxIsOff } from './inbox-options.js';
import { InboxRecorder, isEntryId } from './inbox.recorder.js';

/** Which entries. A member that is left out matches everything; an unknown one and `undefined` are refused. */
export interface WebhookInboxFilter {
  readonly outcome?: InboxOutcome;
  /** Refused requests only, or all others. */
  readonly kind?: 'accepted' | 'refused';
  /** Name of a receiver. */
  readonly receiver?: string;
  /** Code of the answer, such as `bad_signature`. */
  readonly code?: string;
  /** The event's name, exactly. */
  readonly event?: string;
  readonly eventId?: string;
  readonly issuer?: string;
  /** Answered at this time or later. */
  readonly since?: Date;
  /** Answered before this time. */
  readonly until?: Date;
}

/** A received request: a copy of what the store keeps, without headers, payload and explanation in a list. */
export interface WebhookInboxEntry extends Omit<InboxEntry, 'at'> {
  readonly at: Date;
}

/** A page of entries, newest first. */
export interface WebhookInboxPage {
  readonly entries: readonly WebhookInboxEntry[];
  /** Pass it as `after` for the next page; absent on the last one. */
  readonly next?: string;
}

const OUTCOMES: readonly unknown[] = [
  'handled',
  'queued',
  'duplicate',
  'unhandled',
  'failed',
  'dead',
  'refused',
] satisfies InboxOutcome[];

const FILTER_CHECKS = {
  outcome: (value: unknown) =>
    OUTCOMES.includes(value) ? undefined : `must be one of ${OUTCOMES.join(', ')}`,
  kind: (value: unknown) =>
    value === 'accepted' || value === 'refused' ? undefined : "must be 'accepted' or 'refused'",
  receiver: stringFault,
  code: stringFault,
  event: stringFault,
  eventId: stringFault,
  issuer: stringFault,
  since: dateFault,
  until: dateFault,
};

const DEFAULT_PAGE = 50;
const MAX_PAGE = 500;

/**
 * The received requests: what was accepted, what was refused and why, and the dead letters of receivers with
 * `acknowledge: 'queued'`, whose handlers failed in every run.
 *
 * The module's option `inbox` says what is recorded, and where. Entries are written in the background; under a flood of requests,
 * some are counted only ({@link counts}).
 */
@Injectable()
export class WebhookInbox {
  constructor(
    @Inject(WEBHOOK_RECEIVERS) private readonly receivers: ResolvedReceivers,
    private readonly recorder: InboxRecorder,
  ) {}

  /**
   * Whether requests are recorded, and whether a receiver queues events.
   *
   * @hidden
   */
  get features(): { readonly inbox: boolean; readonly deadLetters: boolean } {
    const isRecorded = this.receivers.size > 0 && this.recorder.inbox !== undefined;
    return { inbox: isRecorded, deadLetters: this.queues().length > 0 };
  }

  /**
   * Lists received requests page by page, newest first.
   *
   * @param options - `after`: `next` of the page before; `limit`: 1 to 500, default 50
   * @throws {@link WebhookDeliveryError} `invalid_option`
   * @throws {@link WebhookStoreError} `store_unavailable`
   * @throws {@link WebhookConfigurationError} with `inbox: false`
   *
   * @example
   * ```ts
   * const { entries } = await inbox.list({ kind: 'refused', since: yesterday });
   * ```
   */
  async list(
    filter: WebhookInboxFilter = {},
    options: { readonly after?: string | undefined; readonly limit?: number | undefined } = {},
  ): Promise<WebhookInboxPage> {
    const { since, until, ...others } = readStrictly(filter, 'filter', FILTER_CHECKS) as {
      since?: Date;
      until?: Date;
    } & InboxFilter;
    readStrictly(options, 'options', { after: 'optional', limit: 'optional' });
    const { after, limit = DEFAULT_PAGE } = options;
    if (!Number.isSafeInteger(limit) || limit < 1 || limit > MAX_PAGE) {
      throw invalidOption(`options.limit: must be a whole number from 1 to ${MAX_PAGE}`);
    }
    if (after !== undefined && !isIdentifier(after)) {
      throw invalidOption('options.after: must be `next` of the previous page, unchanged');
    }
    const store = await this.flushedStore();
    const wanted = {
      ...others,
      ...(since !== undefined && { since: since.getTime() }),
      ...(until !== undefined && { until: until.getTime() }),
    };
    const found = await store.list(wanted, { after, limit: limit + 1 });
    const page = found.slice(0, limit);
    return { entries: page.map(viewOf), ...(found.length > limit && { next: page.at(-1)!.id }) };
  }

  /**
   * Returns an entry with everything that was recorded; `undefined` if it is unknown, or no longer kept.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`
   * @throws {@link WebhookConfigurationError} with `inbox: false`
   */
  async get(id: string): Promise<WebhookInboxEntry | undefined> {
    const store = await this.flushedStore();
    const entry = isIdentifier(id) ? await store.find(id) : undefined;
    return entry && viewOf(entry);
  }

  /**
   * Counts the entries that are kept, and those that this process did not record because too many arrived or the store failed.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`
   * @throws {@link WebhookConfigurationError} with `inbox: false`
   */
  async counts(): Promise<{
    readonly accepted: number;
    readonly refused: number;
    readonly dropped: number;
  }> {
    const store = await this.flushedStore();
    return { ...(await store.counts()), dropped: this.recorder.writer!.dropped };
  }

  /**
   * Lists the dead letters, the oldest first.
   *
   * @param receiver - name of the receiver; default: all
   * @throws {@link WebhookStoreError} `store_unavailable`
   * @throws {@link WebhookConfigurationError} for an unknown receiver
   */
  async deadLetters(receiver?: string): Promise<readonly DeadDelivery<ReceivedDelivery>[]> {
    const dead = await Promise.all(this.queues(receiver).map(async (queue) => queue.listDead()));
    return dead
      .flat()
      .filter(isReceived)
      .sort((a, b) => a.diedAt - b.diedAt);
  }

  /**
   * Counts the dead letters without loading them, if the queue can.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`
   * @hidden
   */
  async deadLetterCount(): Promise<number> {
    const counts = await Promise.all(
      this.queues().map(
        async (queue) => (await queue.counts?.())?.dead ?? (await queue.listDead()).length,
      ),
    );
    return counts.reduce((sum, count) => sum + count, 0);
  }

  /**
   * Runs the handlers of queued events again: a dead letter gets the full number of runs, and an event that waits for its next run
   * runs now. Events that are handled, running or due stay as they are.
   *
   * @param ids - one or several: the `id` of an entry, or `delivery.id` of a dead letter
   * @returns the ids, of those that were passed, whose events run again
   * @throws {@link WebhookStoreError} `store_unavailable`, `store_full`
   */
  async retry(ids: string | readonly string[]): Promise<readonly string[]> {
    const given = typeof ids === 'string' ? [ids] : ids;
    const deliveries = new Map<string, string>();
    for (const id of given) deliveries.set(await this.deliveryIdOf(id), id);
    const retried = await Promise.all(
      this.queues().map(async (queue) => queue.redeliver([...deliveries.keys()])),
    );
    for (const id of retried.flat()) this.recorder.settled(id, 'queued', 0);
    return retried.flat().map((id) => deliveries.get(id)!);
  }

  private async deliveryIdOf(id: string): Promise<string> {
    if (this.recorder.inbox === undefined || !isEntryId(id)) return id;
    return (await this.get(id))?.deliveryId ?? id;
  }

  /** The store, once it holds what was received before this call. */
  private async flushedStore(): Promise<InboxStore> {
    const { inbox, writer } = this.recorder;
    if (inbox === undefined || writer === undefined) throw inboxIsOff();
    await writer.flush();
    return inbox.store;
  }

  private queues(name?: string): readonly WebhookQueue[] {
    const receivers =
      name === undefined ? [...this.receivers.values()] : [findReceiver(this.receivers, name)];
    return receivers.flatMap(({ queued }) => queued?.queue ?? []);
  }
}

/** A publisher that shares the queue by mistake has dead deliveries there too. */
function isReceived(dead: DeadDelivery): dead is DeadDelivery<ReceivedDelivery> {
  return dead.delivery.received !== undefined;
}

function viewOf(entry: InboxEntry): WebhookInboxEntry {
  return { ...entry, at: new Date(entry.at) };
}

function stringFault(value: unknown): string | undefined {
  return isIdentifier(value) ? undefined : 'must be a string of 1 to 255 characters';
}

function dateFault(value: unknown): string | undefined {
  return value instanceof Date && !Number.isNaN(value.getTime())
    ? undefined
    : 'must be a valid Date';
}
