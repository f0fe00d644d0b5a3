import { parseDuration, type Duration } from '../clock/duration.js';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import { isOptions, unknownOptions } from '../options/option-shape.js';
import type { SignOptions } from '../sending/event-draft.js';
import type { WebhookEventData, WebhookEventName } from '../token/webhook-event-map.js';
import type { WebhookReceipt } from '../token/webhook-receipt.js';
import type { FailureReason } from '../queue/failure-reason.js';

/** Options of one published event. */
export interface PublishOptions extends SignOptions {
  /** Delays the first attempt. */
  readonly delay?: Duration | undefined;
  /** If aborted before the event is recorded, nothing is recorded; later, it only ends the wait of `send`. */
  readonly signal?: AbortSignal | undefined;
  /**
   * A transaction to record the event in; only for `publish`, with a transactional queue. `send` waits for an
   * attempt, which can only be made after the commit.
   *
   * Default: the current transaction of `@nestjs-cls/transactional`, if any (see `transactionHost`). `false`:
   * none, so the event is sent even if the current one is rolled back.
   */
  readonly tx?: unknown;
}

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
   * Identifies the last request, to compare with what the receiver got. Absent if no request was made, or if only
   * the queue knows the attempt.
   */
  readonly receipt?: WebhookReceipt;
  /** The delivery was recorded before, by a call with the same id, event and data; this is its state. */
  readonly duplicate?: true;
}

/** A request that the caller sends with its own client. It holds the token, so never log it. */
export interface SignedWebhookRequest {
  readonly method: 'HEAD' | 'POST';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Send exactly these bytes; absent for HEAD, and for an event without data. */
  readonly body?: Buffer;
  readonly token: string;
  /** The event's id. */
  readonly id: string;
  /** Identifies the request, to compare with what the receiver got. The only part that is safe to log. */
  readonly receipt: WebhookReceipt;
}

/** Data and options. The data is optional if the event is declared without data, or not declared. */
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
    throw invalid('delay', "must be a duration: milliseconds, or a string such as '15s' or '24h'");
  }
  return ms;
}

function invalid(what: string, rule: string): WebhookDeliveryError {
  return new WebhookDeliveryError('invalid_option', `${what} ${rule}.`);
}
