import type { Duration } from '../clock/duration.js';
import { isWebhookError, WebhookDeliveryError } from '../errors/webhook.error.js';
import type { Problems } from '../options/problems.js';
import { invalidOptions, readArgument } from '../options/read-options.js';
import {
  duration,
  instance,
  notUndefined,
  object,
  optional,
  type Read,
  type Rule,
  unchecked,
} from '../options/rules.js';
import { ENDPOINT_SETTINGS } from '../sending/endpoint.js';
import { draftEvent, type EventDraft, type SignOptions } from '../sending/event-draft.js';
import { isEventName } from '../token/event-name.js';
import { identifier } from '../token/identifier.js';
import type { WebhookEventData, WebhookEventName } from '../token/webhook-event-map.js';
import type { WebhookReceipt } from '../token/webhook-receipt.js';
import type { SentProfile } from '../token/webhook-token.constants.js';
import type { FailureReason } from '../queue/webhook-delivery.js';

/** Options of one published event. */
export interface PublishOptions extends SignOptions {
  /** Delays the first attempt, by at most ten years. */
  readonly delay?: Duration | undefined;
  /**
   * Sends the events of this key to each endpoint one at a time, in the order in which they were published; with `tx`, in the order
   * of the commits. A failed one holds its key until it is delivered or dead. 1 to 255 characters; not for `send`.
   */
  readonly orderingKey?: string | undefined;
  /**
   * Gives a delivery up, with the failure reason `expired`, if it was not delivered so long after the call; longer than `delay`, and
   * at most ten years. Default: only the retry schedule limits it.
   */
  readonly expiresIn?: Duration | undefined;
  /** If aborted before the event is recorded, nothing is recorded; later, it only ends the wait of `send`. */
  readonly signal?: AbortSignal | undefined;
  /**
   * A transaction to record the event in; only for `publish`, with a transactional queue. `send` waits for an
   * attempt, which can only be made after the commit.
   *
   * Default: the current transaction of `@nestjs-cls/transactional`, if any (see `transactionHost`). `false`:
   * none, so the event is sent even if the current one is rolled back. An explicit `undefined` is refused: it is almost
   * always a bug.
   */
  readonly tx?: unknown;
}

/**
 * One event of {@link WebhookPublisher.publishAll}: `{ event, data, options }`, with the options of `publish` except `tx` and `signal`.
 * The data is left out for an event without data.
 */
export type WebhookEventToPublish<Event extends WebhookEventName = WebhookEventName> =
  Event extends WebhookEventName
    ? {
        readonly event: Event;
        readonly options?: Omit<PublishOptions, 'tx' | 'signal'> | undefined;
      } & (undefined extends WebhookEventData<Event>
        ? { readonly data?: WebhookEventData<Event> }
        : { readonly data: WebhookEventData<Event> })
    : never;

export type PublishAllOptions = Pick<PublishOptions, 'tx'>;

/** The recorded event and its deliveries. */
export interface PublishResult {
  /** The event's id. */
  readonly id: string;
  readonly event: string;
  /** One for each subscribed endpoint. */
  readonly deliveries: readonly { readonly id: string; readonly endpointId: string }[];
  /** Every delivery was recorded before, by a call with the same id, event and data; nothing is sent again. */
  readonly duplicate?: true;
}

/** The outcome of the first attempt. */
export interface SendResult {
  /** The event's id. */
  readonly id: string;
  /** `scheduled`: it failed, or has to wait, also for the limits of its endpoint, and will be attempted again. */
  readonly status: 'delivered' | 'scheduled' | 'failed';
  /** Attempts made so far. */
  readonly attempts: number;
  /** The receiver's status, if it answered. Absent if only the queue knows the attempt. */
  readonly statusCode?: number;
  /** Milliseconds the attempt took; 0 if only the queue knows it. */
  readonly durationMs: number;
  /** Only when `scheduled`; a time that has passed if the delivery waits for the limits of its endpoint. */
  readonly nextAttemptAt?: Date;
  /** Absent when `delivered`. */
  readonly failureReason?: FailureReason;
  /**
   * Identifies the last request, to compare with what the receiver got. Absent if no request was made, or if only
   * the queue knows the attempt.
   */
  readonly receipt?: WebhookReceipt;
  /** The delivery was recorded before, by a call with the same id, event and data; this is its state. */
  readonly duplicate?: true;
}

/** A request that the caller sends with its own client. Its headers hold the credentials, so never log it. */
export interface SignedWebhookRequest {
  readonly method: 'HEAD' | 'POST';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Send exactly these bytes; absent for HEAD, and for an event without data. */
  readonly body?: Buffer;
  /** Empty if the endpoint's profile is `'standard-webhooks'`, which has none. */
  readonly token: string;
  /** The event's id. */
  readonly id: string;
  /** Identifies the token's request, to compare with what the receiver got. The only part that is safe to log. Absent without a token. */
  readonly receipt?: WebhookReceipt;
}

/** Data and options. The data is optional if the event is declared without data, or not declared. */
export type EventArguments<Event extends WebhookEventName, Options> =
  undefined extends WebhookEventData<Event>
    ? [data?: WebhookEventData<Event>, options?: Options]
    : [data: WebhookEventData<Event>, options?: Options];

const { audience, subject, method } = ENDPOINT_SETTINGS;

const SIGN_RULES = {
  // Checked with the data.
  contentType: unchecked<string | undefined>(),
  id: optional(identifier('id')),
  audience,
  subject,
  method,
  // An unknown one is not supported here, but it may be elsewhere.
  profile: unchecked<SentProfile | undefined>(),
  tenant: notUndefined(
    identifier('tenant'),
    'pass a tenant, or leave the option out for endpoints without a tenant',
  ),
};

export const SIGN_OPTIONS = object<SignOptions>()(SIGN_RULES);

const EVENT_RULES = {
  ...SIGN_RULES,
  delay: optional(duration({ min: 0, max: '3650d' }), 0),
  expiresIn: optional(duration({ max: '3650d' })),
  orderingKey: optional(identifier('orderingKey')),
};

/** Refuses a delivery that would expire before its first attempt. */
function requireTimeToSend(
  { delay, expiresIn }: { readonly delay: number; readonly expiresIn: number | undefined },
  at: Problems,
): void {
  if (expiresIn === undefined || delay < expiresIn || at.has('delay', 'expiresIn')) return;
  at.add(
    'delay',
    'must be shorter than expiresIn: the event would expire before its first attempt; shorten delay, or lengthen expiresIn',
  );
}

const TX = notUndefined(
  unchecked<unknown>(),
  'pass the transaction, leave the option out for the current one, or pass false for none: otherwise the event would be sent although the transaction is rolled back',
);

const EVENT_OPTIONS = object<NonNullable<WebhookEventToPublish['options']>>()(EVENT_RULES, {
  across: requireTimeToSend,
});

const EVENT_TO_PUBLISH = object<Record<keyof WebhookEventToPublish, unknown>>()(
  { event: unchecked(), data: unchecked(), options: unchecked() },
  { exact: true },
);

/**
 * Reads the options of one event of `publishAll`. Options beside `event` and `data` are refused: without its tenant, an event would
 * go to other endpoints.
 *
 * @throws {@link WebhookDeliveryError} `invalid_option`
 */
function readEventOptions(event: WebhookEventToPublish): Read<typeof EVENT_OPTIONS> {
  const misplaced = Object.keys(EVENT_RULES).find((name) => name in event);
  if (misplaced !== undefined) {
    throw invalidOptions([{ path: misplaced, message: 'unknown option; move it into "options"' }]);
  }
  readArgument(EVENT_TO_PUBLISH, event);
  return readArgument(EVENT_OPTIONS, event.options ?? {});
}

export const PUBLISH_ALL_OPTIONS = object<PublishAllOptions>()({ tx: TX });

export const PUBLISH_OPTIONS = object<PublishOptions>()(
  {
    ...EVENT_RULES,
    signal: optional(instance<AbortSignal>('an AbortSignal', 'addEventListener')),
    tx: TX,
  },
  { across: (read, at) => requireTimeToSend(read, at) },
);

/** A checked event that is not addressed yet. */
export interface ReadEvent {
  readonly draft: EventDraft;
  readonly options: Pick<Read<typeof PUBLISH_OPTIONS>, 'id' | 'delay' | 'signal'>;
  /** Says in messages which event of a call it is; absent if the call has only one. */
  readonly position?: string | undefined;
}

/**
 * Reads the data and the options of a call.
 *
 * `undefined` stands for an event without data only if options follow, which need a place before them.
 *
 * @throws {@link WebhookDeliveryError} `invalid_data`, `invalid_option`
 */
export function readArguments<Options>(
  args: readonly [data?: unknown, options?: unknown],
  rule: Rule<Options>,
): { readonly data: unknown; readonly options: Options } {
  const [data, options = {}] = args;
  if (args.length > 0 && data === undefined && args[1] === undefined) {
    throw new WebhookDeliveryError(
      'invalid_data',
      'The data is undefined, which is almost always a bug; pass the data, or leave the argument out for an event without data.',
    );
  }
  return { data, options: readArgument(rule, options) };
}

/** Events of one call of `publishAll`. */
const MAX_EVENTS = 1_000;

/**
 * Reads the events of a call of `publishAll`, before any of them is recorded.
 *
 * @param now - epoch milliseconds
 * @throws {@link WebhookDeliveryError}; its message says which event of the call it is
 */
export function readEvents(events: unknown, now: number): readonly ReadEvent[] {
  if (!Array.isArray(events) || events.length > MAX_EVENTS) {
    throw new WebhookDeliveryError(
      'invalid_data',
      `publishAll: events must be a list of at most ${MAX_EVENTS} objects { event, data, options }.`,
    );
  }
  // Unlike every(), it also finds the holes of a sparse list.
  const invalid = events.findIndex((one) => !isEventToPublish(one));
  if (invalid === -1) return events.map((one, index) => readEvent(one, index, now));
  throw new WebhookDeliveryError(
    'invalid_data',
    `publishAll: events[${invalid}] must be an object { event, data, options }; leave data out for an event without data.`,
  );
}

/** Data that is `undefined` is almost always a bug. */
function isEventToPublish(one: unknown): one is WebhookEventToPublish {
  if (typeof one !== 'object' || one === null) return false;
  return !('data' in one && one.data === undefined);
}

function readEvent(one: WebhookEventToPublish, index: number, now: number): ReadEvent {
  const { event, data } = one;
  const name = isEventName(event, 'swt-draft-00') ? ` ("${event}")` : '';
  const position = `publishAll: events[${index}]${name}`;
  try {
    const options = readEventOptions(one);
    const draft = draftEvent(event, data, options, now);
    return { draft, options: { ...options, signal: undefined }, position };
  } catch (error) {
    throw prefixed(error, position);
  }
}

/** Runs a step of one event. Its error says which event of the call it is. */
export async function inEvent<T>(
  { position }: Pick<ReadEvent, 'position'>,
  step: () => T | Promise<T>,
): Promise<T> {
  try {
    return await step();
  } catch (error) {
    throw prefixed(error, position);
  }
}

/** Adds a prefix, if there is one, to the message of an error of this package. */
export function prefixed(error: unknown, prefix: string | undefined): unknown {
  if (prefix === undefined || !isWebhookError(error)) return error;
  const { message, stack } = error;
  error.message = `${prefix}: ${message}`;
  if (stack !== undefined) error.stack = stack.replace(message, () => error.message);
  return error;
}
