import type { WebhookClock } from '../../clock/webhook-clock.js';
import { WebhookConfigurationError } from '../../errors/webhook.error.js';
import { type InboxContent, type InboxEntry, InboxStore } from '../../inbox/inbox-store.js';
import { MemoryInboxStore } from '../../inbox/memory-inbox.store.js';
import type { ConfigurationFaults } from '../../options/configuration-faults.js';
import { checkShape, hasMethods, isOptions, type OptionShape } from '../../options/option-shape.js';

/** What {@link WebhookInbox} records of received requests. */
export interface WebhookInboxOptions {
  /** Where it is recorded; default a {@link MemoryInboxStore}, which is lost when the process ends. */
  readonly store?: InboxStore | undefined;
  /** Keep the headers, except credentials such as `Authorization` and `Cookie`; default `false`. */
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

/** The options, checked and filled. */
export interface ResolvedInbox {
  readonly store: InboxStore;
  readonly headers: boolean;
  readonly payload: boolean;
  readonly maxPayloadBytes: number;
  readonly explain: boolean;
  readonly redact: (content: InboxContent, entry: InboxEntry) => InboxContent | undefined;
  readonly clock: WebhookClock;
}

/** Injection token of the {@link ResolvedInbox}; `undefined` if nothing is recorded. */
export const WEBHOOK_INBOX = Symbol('WEBHOOK_INBOX');

const DEFAULT_MAX_PAYLOAD = 65_536;

const isBoolean = {
  holds: (value: unknown) => typeof value === 'boolean',
  message: 'must be a boolean',
};

const INBOX: OptionShape<WebhookInboxOptions> = {
  store: {
    holds: (value) => hasMethods(value, ['record', 'settle', 'find', 'list', 'counts']),
    message:
      'must be an InboxStore, such as new PostgresInboxStore(pool); leave it out for one in memory',
  },
  headers: isBoolean,
  payload: isBoolean,
  maxPayloadBytes: {
    holds: (value) => Number.isSafeInteger(value) && (value as number) >= 0,
    message: 'must be a whole number of bytes',
  },
  explain: isBoolean,
  redact: {
    holds: (value) => typeof value === 'function',
    message: 'must be a function: (content) => content',
  },
};

/** @returns `undefined` if nothing is recorded */
export function resolveInbox(
  given: unknown,
  clock: WebhookClock,
  faults: ConfigurationFaults,
): ResolvedInbox | undefined {
  if (given === false) return undefined;
  if (given !== undefined && !isOptions(given)) {
    faults.add('inbox', 'must be an object: { store, headers, payload, redact }, or false');
    return undefined;
  }
  const options = checkShape(given ?? {}, INBOX, faults.below('inbox'));
  return {
    store: options.store ?? new MemoryInboxStore(),
    headers: options.headers ?? false,
    payload: options.payload ?? false,
    maxPayloadBytes: options.maxPayloadBytes ?? DEFAULT_MAX_PAYLOAD,
    explain: options.explain ?? true,
    redact: options.redact ?? ((content) => content),
    clock,
  };
}

/** The error of an inbox that is turned off. */
export function inboxIsOff(): WebhookConfigurationError {
  return new WebhookConfigurationError([
    {
      path: 'inbox',
      message:
        'is false, so no requests are recorded; leave the option out, or set it to an object',
    },
  ]);
}
