import type { ValidationPipeOptions } from '@nestjs/common';
import type { WebhookClock } from '../clock/webhook-clock.js';
import type { Duration } from '../clock/duration.js';
import type { JwksFetchOptions } from '../keys/jwks-options.js';
import type { KeyProvider } from '../keys/key-provider.js';
import type { WebhookIssuer } from '../keys/webhook-issuer.js';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import type { RetryScheduleOptions } from '../queue/retry-schedule.js';
import type { ReplayStore } from '../replay/replay-store.js';
import type { TokenVerifier } from '../token/token-verifier.js';
import type { WebhookProfile } from '../token/webhook-token.constants.js';
import type { ReceiverIssuers, ValuesByIssuer } from './receiver-issuers.js';
import type { BodySpool, WebhookSpoolOptions } from '../request/body-spool.js';
import type { QueuedEvents } from './queued/queued-events.resolver.js';
import type { PayloadValidator } from './handlers/payload-validator.js';
import type { LeaseKeeper } from './replay/lease-keeper.js';

/** What a receiver remembers, and what it does with a copy. */
export interface WebhookReplayOptions {
  /** Where handled events are remembered. Default: in memory, which protects one process. */
  readonly store?: ReplayStore | undefined;
  /** A copy of a handled event is answered as a success (`acknowledge`, default) or 401 (`reject`). */
  readonly onDuplicate?: 'acknowledge' | 'reject' | undefined;
  /** How long a sender may repeat an event, as milliseconds or text; default `'96h'`. */
  readonly window?: Duration | undefined;
  /**
   * After how long an event that a crashed process was handling is free again, as milliseconds or
   * text; default `'30s'`. A handler may run longer: its lease is extended.
   */
  readonly lease?: Duration | undefined;
}

/** One receiver: whom it trusts, where it listens and how strict it is. */
export interface WebhookReceiverOptions {
  /** Names the receiver for handlers and endpoints; default `'default'`. */
  readonly name?: string | undefined;
  /** Where HEAD and POST are mounted, under the application's global prefix and version. Without it, only `@WebhookRoute()` routes receive. */
  readonly path?: string | undefined;
  /**
   * Everybody whose events are received; or a provider that gives this list, and gives it anew while the
   * application runs. The provider is asked when modules are initialised.
   */
  readonly issuers: readonly WebhookIssuer[] | KeyProvider<readonly WebhookIssuer[]>;
  /** How the key sets of issuers with a `jwksUri` are fetched. */
  readonly jwksFetch?: JwksFetchOptions | undefined;
  /**
   * Wire formats to accept, one or several: `'webhook-token'`, `'swt-draft-00'`, `'swt-draft-02'`; default
   * `['webhook-token']`. A token is held against the rules of one of them, chosen by its `typ` and by the form
   * of its data.
   */
  readonly profiles?: readonly WebhookProfile[] | undefined;
  /** Who this receiver is. With one, a token must name it; without, a token that names any is refused. */
  readonly audience?: string | readonly string[] | undefined;
  /** Seconds by which two clocks may differ, 0 to 300; default 60. `swt-draft-00` has none. */
  readonly clockTolerance?: number | undefined;
  /** Seconds between `iat` and `exp` at the most; default 3600. */
  readonly maxTokenLifetime?: number | undefined;
  /** Refuse a body that no digest in the token authenticates; default `true`. The drafts always require one. */
  readonly requireHash?: boolean | undefined;
  /** Bytes of a body at the most; default 33554432 (32 MiB). */
  readonly maxBodyBytes?: number | undefined;
  /**
   * Members of a JSON body, or of the data in a token: names in objects plus elements of arrays, at all levels; default 100,000.
   * A body with more is answered with 400 `invalid_payload` before it is parsed.
   */
  readonly maxJsonMembers?: number | undefined;
  /** Where large bodies are kept while they are verified and handled: files, by default above 1 MiB; `false` for memory. */
  readonly spool?: WebhookSpoolOptions | false | undefined;
  readonly replay?: WebhookReplayOptions | undefined;
  /**
   * When a sender gets its success: once the event was handled (`handled`, default; 204), or once `queue` has recorded
   * it (`queued`; 202), after which its handlers run until one round succeeds. Holds for `path`; a route's method is its
   * handler, and is always run before the answer.
   */
  readonly acknowledge?: 'handled' | 'queued' | undefined;
  /**
   * Keeps events until they are handled; with `acknowledge: 'queued'`, and then required. An instance of its own: not the
   * publisher's, not another receiver's. What 202 is worth is what the queue survives.
   */
  readonly queue?: WebhookQueue | undefined;
  /**
   * How often handlers of a queued event are run; default 10 times, after 0, 5 s, 30 s, 2 min, 10 min, 30 min, 2 h, 5 h, 10 h, 24 h,
   * each ±20 %. Then it is listed by `WebhookInbox`.
   */
  readonly retry?: RetryScheduleOptions | undefined;
  /** An event without a handler is a success with a warning (`acknowledge`, default) or 422 (`reject`). */
  readonly unhandledEvent?: 'acknowledge' | 'reject' | undefined;
  /**
   * Options of the validation of data parameters typed with a class-validator DTO; `false` for none. Default: the options of the
   * application's global ValidationPipe, if it has one.
   */
  readonly validation?: ValidationPipeOptions | false | undefined;
  /** Take secrets that are too short to be safe, with a warning. For tests only; default `false`. */
  readonly allowWeakSecrets?: boolean | undefined;
}

/** A receiver's options, checked and filled, with its keys parsed. Durations are milliseconds. */
export interface ResolvedReceiver {
  readonly name: string;
  /** Without a slash at either end. */
  readonly path: string | undefined;
  readonly tokens: TokenVerifier;
  readonly allowedEvents: ValuesByIssuer;
  readonly allowedContentTypes: ValuesByIssuer;
  readonly issuers: ReceiverIssuers;
  readonly clockTolerance: number;
  readonly requireHash: boolean;
  readonly maxBodyBytes: number;
  readonly maxJsonMembers: number;
  readonly spool: BodySpool | undefined;
  readonly replayStore: ReplayStore;
  readonly leases: LeaseKeeper;
  readonly onDuplicate: 'acknowledge' | 'reject';
  readonly replayWindow: number;
  readonly replayLease: number;
  /** Absent where events are handled before they are acknowledged. */
  readonly queued: QueuedEvents | undefined;
  readonly unhandledEvent: 'acknowledge' | 'reject';
  readonly validator: PayloadValidator;
  readonly clock: WebhookClock;
  readonly notices: readonly string[];
}

/** The receivers of a module, by name. */
export type ResolvedReceivers = ReadonlyMap<string, ResolvedReceiver>;
