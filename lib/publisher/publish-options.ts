import { parseDuration, type Duration } from '../clock/duration.js';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import { isOptions, unknownOptions } from '../options/option-shape.js';
import type { SignOptions } from '../sending/event-draft.js';
import type { WebhookEventData, WebhookEventName } from '../token/webhook-event-map.js';
import type { WebhookReceipt } from '../token/webhook-receipt.js';
import type { FailureReason } from '../queue/failure-reason.js';

/** Options of one published event. */
export interface PublishOptions extends SignOptions {
  /** Puts the first attempt off. */
  readonly delay?: Duration | undefined;
  /** Aborted before the event is recorded, it records nothing; later, it only ends the waiting of `send`. */
  readonly signal?: AbortSignal | undefined;
  /**
   * A transaction to record the event in; only for `publish`, with a queue that is transactional. `send`
   * waits for an attempt that could only come after the commit.
   *
   * Default: the current transaction of `@nestjs-cls/transactional`, where there is one (see `transactionHost`), else
   * none. `false`: none, so the event goes out whatever becomes of the current one.
   */
  readonly tx?: unknown;
}

/** What was recorded. */
export interface PublishResult {
  /** The event's id. */
  readonly id: string;
  readonly event: string;
  /** One for each endpoint that wants the event. */
  readonly deliveries: readonly { readonly id: string; readonly endpointId: string }[];
  /** Every delivery was recorded before, by a call with the same id, event and data; nothing is sent again. */
  readonly duplicate?: true;
}

/** How the first attempt ended. */
export interface SendResult {
  /** The event's id. */
  readonly id: string;
  /** `scheduled`: it failed, or had to wait, and will be attempted again. */
  readonly status: 'delivered' | 'scheduled' | 'failed';
  /** Attempts made so far. */
  readonly attempts: number;
  /** The receiver's status, if it answered. */
  readonly statusCode?: number;
  /** Milliseconds the attempt took. */
  readonly durationMs: number;
  /** Only when `scheduled`. */
  readonly nextAttemptAt?: Date;
  /** Absent when `delivered`. */
  readonly failureReason?: FailureReason;
  /**
   * What the receiver can be compared with, of the last request that was made; absent when none was, or when
   * only the queue remembers the attempt.
   */
  readonly receipt?: WebhookReceipt;
  /** The delivery was recorded before, by a call with the same id, event and data; this is its state. */
  readonly duplicate?: true;
}

/** A request for the caller to send with a client of its own. It holds the token: never log it. */
export interface SignedWebhookRequest {
  readonly method: 'HEAD' | 'POST';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Send exactly these octets; absent for HEAD, and for an event without data. */
  readonly body?: Buffer;
  readonly token: string;
  /** The event's id. */
  readonly id: string;
  /** What the receiver can be compared with; the one part of the request that is safe to log. */
  readonly receipt: WebhookReceipt;
}

/** Data and options; data may be left out where the event is declared without, or not declared. */
export type EventArguments<Event extends WebhookEventName, Options> =
  undefined extends WebhookEventData<Event>
    ? [data?: WebhookEventData<Event>, options?: Options]
    : [data: WebhookEventData<Event>, options?: Options];

/** The options of `sign`, each with a member of any value. */
export const SIGN_OPTIONS: Readonly<Record<keyof SignOptions, true>> = {
  contentType: true,
  id: true,
  audience: true,
  subject: true,
  method: true,
  profile: true,
  tenant: true,
};

/** The options of `publish` and `send`. */
export const PUBLISH_OPTIONS: Readonly<Record<keyof PublishOptions, true>> = {
  ...SIGN_OPTIONS,
  delay: true,
  signal: true,
  tx: true,
};

/**
 * Reads the data and the options of a call.
 *
 * `undefined` stands for an event without data only if options follow, which need a place before them.
 *
 * @param known - an object with a member for each option of the call
 * @throws {@link WebhookDeliveryError} `invalid_data`, `invalid_option`
 */
export function readArguments(
  args: readonly [data?: unknown, options?: PublishOptions],
  known: Readonly<Partial<Record<keyof PublishOptions, true>>>,
): { readonly data: unknown; readonly options: PublishOptions } {
  const [data, options = {}] = args;
  if (args.length > 0 && data === undefined && args[1] === undefined) {
    throw new WebhookDeliveryError(
      'invalid_data',
      'The data is undefined, which is almost always a bug; pass the data, or leave the argument out for an event without data.',
    );
  }
  if (!isOptions(options)) throw invalid('The options', 'must be an object');
  const [unknown] = unknownOptions(options, known);
  if (unknown !== undefined) {
    throw new WebhookDeliveryError('invalid_option', `${unknown[0]}: ${unknown[1]}`);
  }
  if ('tenant' in options && options.tenant === undefined) {
    throw new WebhookDeliveryError(
      'invalid_option',
      'tenant: is undefined, which is almost always a bug; pass a tenant, or leave the option out for endpoints without a tenant.',
    );
  }
  return { data, options };
}

/**
 * Reads the option `delay`.
 *
 * @returns milliseconds
 * @throws {@link WebhookDeliveryError} `invalid_option`
 */
export function readDelay(delay: PublishOptions['delay']): number {
  const ms = parseDuration(delay ?? 0);
  if (ms === undefined) {
    throw invalid('delay', "must be a duration: milliseconds, or a text like '15s' or '24h'");
  }
  return ms;
}

function invalid(what: string, rule: string): WebhookDeliveryError {
  return new WebhookDeliveryError('invalid_option', `${what} ${rule}.`);
}
