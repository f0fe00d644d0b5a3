import type { WebhookClock } from '../../clock/webhook-clock.js';
import { type InboxContent, type InboxEntry, InboxStore } from '../../inbox/inbox-store.js';
import { MemoryInboxStore } from '../../inbox/memory-inbox.store.js';
import {
  flag,
  func,
  instance,
  object,
  optional,
  orFalse,
  type Read,
  whole,
} from '../../options/rules.js';

/** What {@link WebhookInbox} records of received requests. */
export interface WebhookInboxOptions {
  /** Where it is recorded; default a {@link MemoryInboxStore}, which is lost when the process ends. */
  readonly store?: InboxStore | undefined;
  /** Keep the headers, except credentials such as `Authorization`, `Cookie` and the header of a sender; default `false`. */
  readonly headers?: boolean | undefined;
  /** Keep the data of verified events, up to `maxPayloadBytes`; default `false`. Data of refused requests is never kept. */
  readonly payload?: boolean | undefined;
  /** The largest payload that is kept, in bytes; default 65,536. */
  readonly maxPayloadBytes?: number | undefined;
  /** Keep an explanation of refused requests, of some a second at most; default `true`. */
  readonly explain?: boolean | undefined;
  /**
   * Removes personal or secret values from headers and payload before they are recorded. If it throws, neither is recorded.
   *
   * @returns what to record; `undefined` for nothing
   */
  readonly redact?:
    ((content: InboxContent, entry: InboxEntry) => InboxContent | undefined) | undefined;
}

/** What is recorded, and where. */
export type ResolvedInbox = Readonly<NonNullable<ReturnType<typeof resolveInbox>>>;

/** Injection token of the {@link ResolvedInbox}; `undefined` if nothing is recorded. */
export const WEBHOOK_INBOX = Symbol('WEBHOOK_INBOX');

type Redact = NonNullable<WebhookInboxOptions['redact']>;

export const INBOX = orFalse(
  object<WebhookInboxOptions>()(
    {
      store: optional(
        instance<InboxStore>(
          'an InboxStore, such as new PostgresInboxStore(pool); leave it out for one in memory',
          'record',
          'settle',
          'find',
          'list',
          'counts',
        ),
      ),
      headers: optional(flag, false),
      payload: optional(flag, false),
      maxPayloadBytes: optional(whole(0, undefined, 'of bytes'), 65_536),
      explain: optional(flag, true),
      redact: optional(func<Redact>('(content) => content'), (content: InboxContent) => content),
    },
    { form: 'an object: { store, headers, payload, redact }, or false' },
  ),
);

/** @returns `undefined` if nothing is recorded */
export function resolveInbox(options: Read<typeof INBOX>, clock: WebhookClock) {
  if (options === false) return undefined;
  return { ...options, store: options.store ?? new MemoryInboxStore(), clock };
}
