import type { Readable } from 'node:stream';
import { WebhookReplayError } from '../errors/webhook.error.js';
import type { RequestBody } from '../request/request-body.js';
import type { WebhookTokenClaims } from '../token/webhook-claims.interface.js';
import type { WebhookEventData, WebhookEventsMatching } from '../token/webhook-event-map.js';
import type { WebhookProfile } from '../token/webhook-token.constants.js';
import type { WebhookReception } from './replay/webhook-reception.js';
import { PayloadValidator } from './handlers/payload-validator.js';

const NO_VALIDATION = new PayloadValidator(false);

/**
 * What the receiver keeps with an event, out of its handlers' sight. A member of the event, not a WeakMap beside it: the garbage
 * collector takes the values of one for alive, and with them each event's claims and data (benchmark `receive`).
 */
export class EventKeeping {
  /** Records the event in a transaction; absent for an event that is not being received. */
  reception: WebhookReception | undefined;
  /** How many handlers the event has. */
  handlers = 1;

  constructor(readonly validator: PayloadValidator = NO_VALIDATION) {}
}

/** What a {@link WebhookEvent} is made of. */
interface WebhookEventParts {
  readonly claims: WebhookTokenClaims;
  readonly attempt: number | undefined;
  /** Default 1. */
  readonly run?: number | undefined;
  /** `undefined` also where the body is the data and lies in a file. */
  readonly data: unknown;
  readonly body: RequestBody;
  /** Whether the body is the data, octet for octet, and is read when somebody asks for it. */
  readonly isSpooled?: boolean;
  readonly bodyVerified: boolean;
  readonly contentType: string | undefined;
  readonly method: 'HEAD' | 'POST';
  readonly profile: WebhookProfile;
  readonly receiver: string;
  readonly signal: AbortSignal;
  /** Default: nothing is validated, and nobody records the event in a transaction. */
  readonly keeping?: EventKeeping;
}

/** What the receiver keeps with an event. */
export let keepingOf: (event: WebhookEvent) => EventKeeping;

/** Whether its data is in a file, and is read when somebody asks for it. */
export let isReadLater: (event: WebhookEvent) => boolean;

/**
 * A verified event: what handlers receive besides its data.
 *
 * @typeParam Pattern - the event's name, or the pattern it was subscribed by
 */
export class WebhookEvent<Pattern extends string = string> {
  /** The event's id, the same over all attempts to deliver it: `txn`, else `jti`. */
  readonly id: string;
  /** The token's own id. */
  readonly jti: string;
  /** The event's name. */
  readonly event: WebhookEventsMatching<Pattern>;
  readonly issuer: string;
  readonly subject: string | undefined;
  readonly audience: string | readonly string[] | undefined;
  readonly issuedAt: Date;
  readonly expiresAt: Date;
  /** Name of the receiver it came in by. */
  readonly receiver: string;
  /** The wire format it came in. */
  readonly profile: WebhookProfile;
  readonly method: 'HEAD' | 'POST';
  /** Content type of the data; `undefined` where there is none. */
  readonly contentType: string | undefined;
  /** Whether the token authenticates the body; `false` only with `requireHash: false`. */
  readonly bodyVerified: boolean;
  /** The sender's attempt number, from 1, where the token carries one: `swt-draft-02` may. */
  readonly attempt: number | undefined;
  /**
   * How often the event has been given to handlers, this time included: 1 at the door, and from 1 up for one that was queued
   * (`acknowledge: 'queued'`). A run that was cut off by a crash counts with the one that makes up for it.
   */
  readonly run: number;
  /** Every claim, those this package does not know included. */
  readonly claims: WebhookTokenClaims;
  /** Aborted when the application shuts down and cannot wait for the handler any longer. */
  readonly signal: AbortSignal;

  static {
    keepingOf = (event) => event.#keeping;
    isReadLater = (event) => event.#isUnread;
  }

  readonly #keeping: EventKeeping;
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
    this.run = parts.run ?? 1;
    this.claims = claims;
    this.signal = parts.signal;
    this.#keeping = parts.keeping ?? new EventKeeping();
    this.#body = parts.body;
    this.#data = parts.data;
    this.#isUnread = parts.isSpooled === true;
  }

  /**
   * The claim's data, or the parsed JSON body, or for other content types the body as a Buffer.
   *
   * A large body of another content type lies in a file, and is read into memory when this is first asked for, which holds
   * the event loop meanwhile: {@link stream} does not.
   */
  get data(): WebhookEventData<Pattern> {
    if (this.#isUnread) {
      this.#data = this.#body.readNow();
      this.#isUnread = false;
    }
    return this.#data;
  }

  /**
   * Records the event as handled in a transaction of the handler's own: its effects and the record are committed together,
   * or neither is. It is the last statement before the commit, since a copy of the event waits for its end.
   *
   * ```ts
   * await dataSource.transaction(async (tx) => {
   *   await tx.insert(Order, order);
   *   await event.commit(tx);
   * });
   * ```
   *
   * The transaction must be over when the handler is. A handler that fails afterwards changes nothing: what was committed
   * stays handled, what was rolled back is free for the sender's next attempt.
   *
   * @param tx - of the database that the receiver's replay store lies in; see `PostgresReplayStore`
   * @throws {@link WebhookReplayError} `lease_lost` where another may be handling the event: roll back, and the sender comes again;
   *   `unsupported_option` where the receiver's store cannot join a transaction, or several handlers take the event
   * @throws {@link WebhookDeliveryError} `unsupported_option` for what is no transaction
   * @throws {@link WebhookStoreError} `store_unavailable` where the statement fails; its `cause` has the SQLSTATE
   */
  async commit(tx: unknown): Promise<void> {
    await receptionFor(this.#keeping).commitIn(tx);
  }

  /** The request's body, octet for octet, as a whole; empty for HEAD. */
  async rawBody(): Promise<Buffer> {
    return this.#body.read();
  }

  /**
   * The request's body as a stream of Buffers; every call starts anew. All of it is verified before the first one comes.
   * A large body is removed when the event's handling has ended; a stream that was begun before that is read to its end.
   */
  stream(): Readable {
    return this.#body.stream();
  }
}

/** @throws {@link WebhookReplayError} `unsupported_option` if the event cannot be committed by a handler */
function receptionFor({ reception, handlers }: EventKeeping): WebhookReception {
  if (handlers > 1) {
    // Recorded by one of them, the event would count as handled although another one fails, which would never run again.
    throw new WebhookReplayError(
      'unsupported_option',
      `${handlers} handlers take this event, and one alone cannot record it as handled: commit it in one handler that does the work of all of them, or leave it to the receiver`,
    );
  }
  if (reception !== undefined) return reception;
  throw new WebhookReplayError(
    'unsupported_option',
    'the event was not received by a receiver, so there is no record of it to commit',
  );
}
