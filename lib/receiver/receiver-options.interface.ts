import type { ValidationPipeOptions } from '@nestjs/common';
import type { Duration } from '../clock/duration.js';
import type { JwksFetchOptions } from '../keys/jwks-options.js';
import type { KeyProvider } from '../keys/key-provider.js';
import type { WebhookIssuer } from '../keys/issuer-list.js';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import type { RetryScheduleOptions } from '../queue/retry-schedule.js';
import type { ReplayStore } from '../replay/replay-store.js';
import type { WebhookProfile } from '../token/webhook-token.constants.js';
import type { WebhookSpoolOptions } from '../request/body-spool.js';
import type { WebhookScheme } from '../request/webhook-scheme.js';
import type { resolveReceiver } from './receiver-options.resolver.js';

/** How a receiver recognises duplicates, and how it answers them. */
export interface WebhookReplayOptions {
  /** Stores handled events. Default: in memory, which protects one process only. */
  readonly store?: ReplayStore | undefined;
  /** Answers a duplicate of a handled event with a success (`acknowledge`, default) or 401 (`reject`). */
  readonly onDuplicate?: 'acknowledge' | 'reject' | undefined;
  /** How long a sender may repeat an event, in milliseconds or as a string; default `'96h'`. */
  readonly window?: Duration | undefined;
  /**
   * Time after which an event of a crashed process can be handled again, in milliseconds or as a string; default `'30s'`. The lease
   * of a running handler is extended, so it may run longer.
   */
  readonly lease?: Duration | undefined;
}

/** A receiver: the issuers or the sender it trusts, its path, and its rules. */
export interface WebhookReceiverOptions {
  /** Name of the receiver, for handlers and routes; default `'default'`. */
  readonly name?: string | undefined;
  /** Where HEAD and POST are mounted, under the application's global prefix and version. Without it, only `@WebhookRoute()` routes receive. */
  readonly path?: string | undefined;
  /**
   * The issuers whose events are received, or a provider of this list, which may change while the application runs. The provider is
   * first called when modules are initialised. Required without a `sender`.
   */
  readonly issuers?: readonly WebhookIssuer[] | KeyProvider<readonly WebhookIssuer[]> | undefined;
  /**
   * A sender that signs in another way than by tokens, such as `stripe({ secret })` of `nestjs-webhook-token/senders`. With
   * `issuers` too, either signature is accepted.
   */
  readonly sender?: WebhookScheme | undefined;
  /** How the key sets of issuers with a `jwksUri` are fetched. */
  readonly jwksFetch?: JwksFetchOptions | undefined;
  /**
   * Wire formats to accept, one or several: `'webhook-token'`, `'swt-draft-00'`, `'swt-draft-02'`; default
   * `['webhook-token']`. A token is checked by the rules of one of them, chosen by its `typ` and the form of its data.
   */
  readonly profiles?: readonly WebhookProfile[] | undefined;
  /** This receiver's audience: a token must contain it. Without one, a token with an audience is refused. */
  readonly audience?: string | readonly string[] | undefined;
  /** Seconds by which two clocks may differ, or a string such as `'60s'`; 0 to 300 seconds, default 60. `swt-draft-00` has none. */
  readonly clockTolerance?: Duration | undefined;
  /** Maximum time between `iat` and `exp`: seconds, or a string such as `'1h'`; default 3600. */
  readonly maxTokenLifetime?: Duration | undefined;
  /** Refuse a body that no hash in the token covers; default `true`. The draft profiles always require a hash. */
  readonly requireHash?: boolean | undefined;
  /** Maximum bytes of a body; default 33554432 (32 MiB). */
  readonly maxBodyBytes?: number | undefined;
  /**
   * Members of a JSON body, or of the data in a token: names in objects plus elements of arrays, at all levels; default 100,000.
   * A body with more is rejected with 400 `invalid_payload` before it is parsed.
   */
  readonly maxJsonMembers?: number | undefined;
  /** Writes large bodies to temporary files while they are verified and handled, by default above 1 MiB; `false` keeps them in memory. */
  readonly spool?: WebhookSpoolOptions | false | undefined;
  readonly replay?: WebhookReplayOptions | undefined;
  /**
   * When a sender gets its success: after the event was handled (`handled`, default; 204), or after `queue` recorded it (`queued`;
   * 202), in which case its handlers run until a run succeeds. Applies to `path`; the method of a route always runs before the
   * answer.
   */
  readonly acknowledge?: 'handled' | 'queued' | undefined;
  /**
   * Stores events until they are handled; required with `acknowledge: 'queued'`. Use a separate instance, not the publisher's or
   * another receiver's. An acknowledged event survives what the queue survives.
   */
  readonly queue?: WebhookQueue | undefined;
  /**
   * When the handlers of a queued event run; default 10 times, after 0, 5 s, 30 s, 2 min, 10 min, 30 min, 2 h, 5 h, 10 h, 24 h, each
   * ±20 %. Then the event is a dead letter, see `WebhookInbox`.
   */
  readonly retry?: RetryScheduleOptions | undefined;
  /** Answers an event without a handler with a success and a warning (`acknowledge`, default) or 422 (`reject`). */
  readonly unhandledEvent?: 'acknowledge' | 'reject' | undefined;
  /**
   * Options of the validation of data parameters typed with a class-validator DTO; `false` for none. The options of a
   * global ValidationPipe do not apply: repeat them here.
   */
  readonly validation?: ValidationPipeOptions | false | undefined;
  /** Accept secrets that are too short to be safe, with a warning. For tests only; default `false`. */
  readonly allowWeakSecrets?: boolean | undefined;
}

/** A receiver, with its options checked and its keys parsed. Durations are milliseconds. */
export type ResolvedReceiver = Readonly<NonNullable<ReturnType<typeof resolveReceiver>>>;

export type ResolvedReceivers = ReadonlyMap<string, ResolvedReceiver>;
