import type { Readable } from 'node:stream';
import type { ArgumentsHost } from '@nestjs/common';
import { WebhookReplayError } from '../errors/webhook.error.js';
import type { RequestBody } from '../request/body.js';
import type { VerifiedRequest } from '../request/webhook-scheme.js';
import { isIdentifier } from '../token/identifier.js';
import type { WebhookTokenClaims } from '../token/webhook-claims.interface.js';
import type { WebhookEventData, WebhookEventsMatching } from '../token/webhook-event-map.js';
import type { ReceivedProfile } from '../token/webhook-token.constants.js';
import type { QueuedTrace, ReceivingOperation } from './receiver.channels.js';
import type { PayloadValidator } from './handlers/payload-validator.js';
import { WEBHOOK_CONTEXT_TYPE } from './receiver.constants.js';
import type { WebhookReception } from './reception.js';

/**
 * What the receiver stores with an event, hidden from handlers. A private member of the event instead of a WeakMap, whose values V8
 * keeps alive until a full GC (benchmark `receive`).
 */
export class EventInternals {
  /** Records the event in a transaction; absent for an event that is not being received. */
  reception: WebhookReception | undefined;
  /** How many handlers the event has. */
  handlers = 1;
  /** The request it arrived in, if it is observed. */
  receiving: ReceivingOperation | undefined;
  /** Set for an event from a queue that was recorded in an observed request. */
  queued: QueuedTrace | undefined;

  constructor(readonly validator: PayloadValidator) {}
}

interface WebhookEventParts extends Omit<VerifiedRequest, 'digest'> {
  /** Default 1. */
  readonly run?: number | undefined;
  readonly receiver: string;
  readonly signal: AbortSignal;
  readonly internals: EventInternals;
}

export let internalsOf: (event: WebhookEvent) => EventInternals;

/** Whether its data is in a file, and has not been read yet. */
export let isReadOnDemand: (event: WebhookEvent) => boolean;

/**
 * A verified event: what handlers receive besides its data.
 *
 * @typeParam Pattern - the event's name, or the pattern it was subscribed by
 */
export class WebhookEvent<Pattern extends string = string> {
  /** The event's id, the same for all delivery attempts: `txn`, else `jti`. Of a sender that signs no id, the digest of the body. */
  readonly id: string;
  /** The token's own id; of another sender, the event's. */
  readonly jti: string;
  /** The event's name. */
  readonly event: WebhookEventsMatching<Pattern>;
  /** The `iss` of its token, or the name of its sender. */
  readonly issuer: string;
  readonly subject: string | undefined;
  readonly audience: string | readonly string[] | undefined;
  readonly issuedAt: Date;
  readonly expiresAt: Date;
  /** Name of the receiver that received it. */
  readonly receiver: string;
  /** The wire format of its token, or the name of its sender. */
  readonly profile: ReceivedProfile;
  readonly method: 'HEAD' | 'POST';
  /** Content type of the data; `undefined` without data. */
  readonly contentType: string | undefined;
  /** Whether the signature covers the body; `false` only with `requireHash: false`, or for a sender that does not sign it. */
  readonly bodyVerified: boolean;
  /** The sender's attempt number, from 1, if the token has one (`swt-draft-02`). */
  readonly attempt: number | undefined;
  /** The ordering key that the sender published it with; its events arrive one at a time, in the order of {@link sequence}. */
  readonly orderingKey: string | undefined;
  /**
   * Its number among the events of its {@link orderingKey}: larger by one than that of the event before. A smaller number is a
   * repetition, a gap an event that the sender has given up.
   */
  readonly sequence: number | undefined;
  /**
   * Number of this run of the handlers: 1 if the event is handled on arrival, from 1 up with `acknowledge: 'queued'`. A run that a
   * crash interrupted and the run that repeats it have the same number.
   */
  readonly run: number;
  /** All claims, including unknown ones. Of another sender, its event in the same form, with the time it was signed as `iat`. */
  readonly claims: WebhookTokenClaims;
  /** Aborted when the application shuts down and its `shutdownTimeout` has passed. */
  readonly signal: AbortSignal;

  static {
    internalsOf = (event) => event.#internals;
    isReadOnDemand = (event) => event.#isUnread;
  }

  readonly #internals: EventInternals;
  readonly #body: RequestBody;
  #data: WebhookEventData<Pattern>;
  #isUnread: boolean;

  constructor(parts: WebhookEventParts) {
    const { claims } = parts;
    this.id = claims.txn ?? claims.jti;
    this.jti = claims.jti;
    this.event = claims.webhook.event;
    this.issuer = claims.iss;
    this.subject = claims.sub;
    this.audience = claims.aud;
    this.issuedAt = new Date(claims.iat * 1_000);
    this.expiresAt = new Date(claims.exp * 1_000);
    this.receiver = parts.receiver;
    this.profile = parts.profile;
    this.method = parts.method;
    this.contentType = parts.contentType;
    this.bodyVerified = parts.bodyVerified;
    this.attempt = parts.attempt;
    const { key, seq } = claims.webhook;
    // Another sender may use these members in another way.
    const isOrdered = isIdentifier(key) && Number.isSafeInteger(seq);
    this.orderingKey = isOrdered ? key : undefined;
    this.sequence = isOrdered ? (seq as number) : undefined;
    this.run = parts.run ?? 1;
    this.claims = claims;
    this.signal = parts.signal;
    this.#internals = parts.internals;
    this.#body = parts.body;
    this.#data = parts.data;
    this.#isUnread = parts.isSpooled;
  }

  /**
   * The claim's data, or the parsed JSON body, or for other content types the body as a Buffer.
   *
   * A large body of another content type is in a file. The first access reads it into memory and blocks the event loop meanwhile; use
   * {@link stream} instead.
   */
  get data(): WebhookEventData<Pattern> {
    if (this.#isUnread) {
      this.#data = this.#body.readNow();
      this.#isUnread = false;
    }
    return this.#data;
  }

  /**
   * Records the event as handled in the handler's own transaction: its effects and the record are committed together, or neither
   * is. Call it right before the commit, since a copy of the event waits until the transaction ends.
   *
   * ```ts
   * await dataSource.transaction(async (tx) => {
   *   await tx.insert(Order, order);
   *   await event.commit(tx);
   * });
   * ```
   *
   * The transaction must end before the handler does. If the handler fails afterwards, a committed event stays handled, and one that
   * was rolled back is free for the sender's next attempt.
   *
   * @param tx - on the database of the receiver's replay store; see `PostgresReplayStore`
   * @throws {@link WebhookReplayError} `lease_lost` if another process may be handling the event: roll back, the sender repeats it;
   *   `unsupported_option` if the receiver's store cannot join a transaction, or the event has several handlers
   * @throws {@link WebhookDeliveryError} `unsupported_option` if `tx` is not a transaction
   * @throws {@link WebhookStoreError} `store_unavailable` if the statement fails; its `cause` has the SQLSTATE
   */
  async commit(tx: unknown): Promise<void> {
    await receptionFor(this.#internals).commitIn(tx);
  }

  /** The exact bytes of the request's body; empty for HEAD. */
  async rawBody(): Promise<Buffer> {
    return this.#body.read();
  }

  /**
   * The request's body as a stream of Buffers; every call starts at the beginning. The whole body is verified before the handler
   * runs. A large body is removed after the handler ends; a stream that was started before can still be read to its end.
   */
  stream(): Readable {
    return this.#body.stream();
  }
}

/** @throws {@link WebhookReplayError} `unsupported_option` if the event cannot be committed by a handler */
function receptionFor({ reception, handlers }: EventInternals): WebhookReception {
  if (handlers > 1) {
    // If one recorded the event and another failed, the event would count as handled and the other would never run again.
    throw new WebhookReplayError(
      'unsupported_option',
      `${handlers} handlers handle this event, so one alone cannot record it as handled: merge them into one handler, or leave the record to the receiver`,
    );
  }
  if (reception !== undefined) return reception;
  throw new WebhookReplayError(
    'unsupported_option',
    'the event was not received by a receiver, so there is no record of it to commit',
  );
}

/** Whether Nest calls a handler with a verified event. A `@WebhookRoute()` that is a handler too has its guard there as well. */
export function isHandlerCall(host: ArgumentsHost): boolean {
  return (
    host.getType<string>() === WEBHOOK_CONTEXT_TYPE && host.getArgByIndex(0) instanceof WebhookEvent
  );
}
