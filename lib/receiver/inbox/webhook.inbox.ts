import { Inject, Injectable } from '@nestjs/common';
import { WebhookConfigurationError } from '../../errors/webhook.error.js';
import type { InboxEntry, InboxOutcome, InboxStore } from '../../inbox/inbox-store.js';
import { readArgument } from '../../options/read-options.js';
import * as option from '../../options/rules.js';
import { newestFirst, cursor, CURSOR_RULE, cursorOf } from '../../queue/delivery-list.js';
import type { ListedDelivery, WebhookQueue } from '../../queue/webhook-queue.js';
import type { DeliveryAttempt, FailureReason } from '../../queue/webhook-delivery.js';
import { identifier, isIdentifier } from '../../token/identifier.js';
import { findReceiver, type ResolvedReceivers } from '../receiver-options.resolver.js';
import { WEBHOOK_RECEIVERS } from '../receiver.constants.js';
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

interface InboxPageOptions {
  readonly after?: string | undefined;
  readonly limit?: number | undefined;
}

/** Which dead letters, and which page of them. */
export interface DeadLetterOptions {
  /** Name of a receiver; default: all. */
  readonly receiver?: string | undefined;
  /** The event's name, exactly. */
  readonly event?: string | undefined;
  /** `next` of the page before. */
  readonly after?: string | undefined;
  /** 1 to 500; default 50. */
  readonly limit?: number | undefined;
}

/** An event that was acknowledged and whose handlers failed in every run. */
export interface DeadLetter {
  /** Pass it to `retry`. */
  readonly id: string;
  readonly receiver: string;
  /** The event's name. */
  readonly event: string;
  readonly eventId: string;
  /** How often its handlers ran. */
  readonly runs: number;
  readonly failureReason: FailureReason;
  readonly receivedAt: Date;
  /** When the last run failed. */
  readonly diedAt: Date;
}

/** A page of dead letters, newest first. */
export interface DeadLetterPage {
  readonly deadLetters: readonly DeadLetter[];
  /** Pass it as `after` for the next page; absent on the last one. */
  readonly next?: string;
}

/** Dead letters that are retried at once: each is read with its payload, which may be large. */
const RETRIED_AT_ONCE = 10;

const EXACT = { exact: true };

const FILTER_MEMBERS = {
  outcome: option.notUndefined(
    option.oneOf('handled', 'queued', 'duplicate', 'unhandled', 'failed', 'dead', 'refused'),
  ),
  kind: option.notUndefined(option.oneOf('accepted', 'refused')),
  receiver: option.notUndefined(identifier()),
  code: option.notUndefined(identifier()),
  event: option.notUndefined(identifier()),
  eventId: option.notUndefined(identifier()),
  issuer: option.notUndefined(identifier()),
  since: option.notUndefined(option.time),
  until: option.notUndefined(option.time),
};

const FILTER = option.object<WebhookInboxFilter>()(FILTER_MEMBERS, EXACT);

const ERASURE = option.object<WebhookInboxFilter>()(FILTER_MEMBERS, {
  ...EXACT,
  across(read, at) {
    at.requireMembers(read, 'pass an eventId, a receiver or another member');
  },
});

const LIMIT = option.optional(option.whole(1, 500), 50);

const PAGE = option.object<InboxPageOptions>()(
  { after: option.optional(option.rule<string>(isIdentifier, CURSOR_RULE)), limit: LIMIT },
  EXACT,
);

const DEAD_LETTERS = option.object<DeadLetterOptions>()(
  {
    receiver: option.optional(identifier()),
    event: option.optional(identifier()),
    after: option.optional(cursor),
    limit: LIMIT,
  },
  EXACT,
);

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
    options: InboxPageOptions = {},
  ): Promise<WebhookInboxPage> {
    const wanted = readArgument(FILTER, filter, 'filter');
    const { after, limit } = readArgument(PAGE, options, 'options');
    const store = await this.flushedStore();
    const found = await store.list(wanted, { after, limit: limit + 1 });
    const page = found.slice(0, limit);
    return { entries: page.map(viewOf), next: found.length > limit ? page.at(-1)!.id : undefined };
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
   * Deletes entries permanently, for example at the request of the person whom an event is about. The event itself, in the queue of a receiver with
   * `acknowledge: 'queued'`, is not affected: call `erase` of that queue.
   *
   * @param filter - at least one member
   * @returns the number of deleted entries
   * @throws {@link WebhookDeliveryError} `invalid_option`
   * @throws {@link WebhookStoreError} `store_unavailable`
   * @throws {@link WebhookConfigurationError} with `inbox: false`
   *
   * @example
   * ```ts
   * await inbox.erase({ issuer: 'https://shop.example', eventId });
   * ```
   */
  async erase(filter: WebhookInboxFilter): Promise<number> {
    const wanted = readArgument(ERASURE, filter, 'filter');
    const store = await this.flushedStore();
    return store.erase(wanted);
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
   * Lists the dead letters page by page, newest first.
   *
   * @throws {@link WebhookDeliveryError} `invalid_option`
   * @throws {@link WebhookStoreError} `store_unavailable`
   * @throws {@link WebhookConfigurationError} for an unknown receiver
   */
  async deadLetters(options: DeadLetterOptions = {}): Promise<DeadLetterPage> {
    const { receiver, event, after, limit } = readArgument(DEAD_LETTERS, options, 'options');
    const lists = await Promise.all(
      this.queues(receiver).map(async (queue) =>
        queue.list({ receiver, event, status: 'dead' }, { limit: limit + 1, after }),
      ),
    );
    const found = lists.flat().toSorted((a, b) => newestFirst(a.delivery, b.delivery));
    const page = found.slice(0, limit);
    return {
      deadLetters: page.flatMap(deadLetterOf),
      next: found.length > limit ? cursorOf(page.at(-1)!.delivery) : undefined,
    };
  }

  /**
   * Counts the dead letters.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`
   * @hidden
   */
  async deadLetterCount(): Promise<number> {
    const counts = await Promise.all(
      this.queues().map(async (queue) => queue.counts({ unfinished: true })),
    );
    return counts.flat().reduce((sum, { dead }) => sum + dead, 0);
  }

  /**
   * Lists the runs of a queued event's handlers, oldest first.
   *
   * @param id - the `id` of an entry or of a dead letter
   * @throws {@link WebhookStoreError} `store_unavailable`
   * @hidden
   */
  async runs(id: string): Promise<readonly DeliveryAttempt[]> {
    const deliveryId = await this.deliveryIdOf(id);
    if (!isIdentifier(deliveryId)) return [];
    const runs = await Promise.all(this.queues().map(async (queue) => queue.attempts(deliveryId)));
    return runs.flat();
  }

  /**
   * Runs the handlers of queued events again: a dead letter gets the full number of runs, and an event that waits for its next run
   * runs now. Events that are handled, running or due stay as they are.
   *
   * @param ids - one or several: the `id` of an entry or of a dead letter
   * @returns the ids, of those that were passed, whose events run again
   * @throws {@link WebhookStoreError} `store_unavailable`, `store_full`
   */
  async retry(ids: string | readonly string[]): Promise<readonly string[]> {
    const given = typeof ids === 'string' ? [ids] : ids;
    const deliveries = new Map<string, string>();
    for (const id of given) deliveries.set(await this.deliveryIdOf(id), id);
    const retried: string[] = [];
    const wanted = [...deliveries.keys()];
    for (let from = 0; from < wanted.length; from += RETRIED_AT_ONCE) {
      const part = wanted.slice(from, from + RETRIED_AT_ONCE);
      // Queued before they are: a run may end, here or elsewhere, before `redeliver` resolves.
      await this.settleDead(part, 'queued');
      try {
        const lists = await Promise.all(this.queues().map(async (queue) => queue.redeliver(part)));
        retried.push(...lists.flat());
      } catch (error) {
        // If this fails too, they are settled by the next retry.
        await this.settleDead(part, 'dead').catch(() => undefined);
        throw error;
      }
    }
    return retried.map((id) => deliveries.get(id)!);
  }

  /** Records an outcome in the entries of those that are dead letters. */
  private async settleDead(ids: readonly string[], outcome: 'queued' | 'dead'): Promise<void> {
    const { writer } = this.recorder;
    if (writer === undefined) return;
    const records = await Promise.all(this.queues().map(async (queue) => queue.find(ids)));
    for (const record of records.flat()) {
      if (record?.status !== 'dead' || record.payloadDropped === true) continue;
      const runs = outcome === 'dead' ? record.attempts : 0;
      this.recorder.settled(record.delivery.id, outcome, runs);
    }
    await writer.flush();
  }

  private async deliveryIdOf(id: string): Promise<string> {
    if (this.recorder.inbox === undefined || !isEntryId(id)) return id;
    return (await this.get(id))?.deliveryId ?? id;
  }

  /** The store, once it holds what was received before this call. */
  private async flushedStore(): Promise<InboxStore> {
    const { inbox, writer } = this.recorder;
    if (inbox === undefined || writer === undefined) {
      const message =
        'is false, so no requests are recorded; leave the option out, or set it to an object';
      throw new WebhookConfigurationError([{ path: 'inbox', message }]);
    }
    await writer.flush();
    return inbox.store;
  }

  /** The queues of the receiver, or of all; receivers that share a queue have one entry. */
  private queues(name?: string): readonly WebhookQueue[] {
    const receivers =
      name === undefined ? [...this.receivers.values()] : [findReceiver(this.receivers, name)];
    return [...new Set(receivers.flatMap(({ queued }) => queued?.queue ?? []))];
  }
}

function deadLetterOf({ delivery, attempts, reason, updatedAt }: ListedDelivery): DeadLetter[] {
  if (delivery.received === undefined) return [];
  const { id, event, eventId, received, createdAt } = delivery;
  return [
    {
      id,
      receiver: received.receiver,
      event,
      eventId,
      runs: attempts,
      failureReason: reason!,
      receivedAt: new Date(createdAt),
      diedAt: new Date(updatedAt),
    },
  ];
}

function viewOf(entry: InboxEntry): WebhookInboxEntry {
  return { ...entry, at: new Date(entry.at) };
}
