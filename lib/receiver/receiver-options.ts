import type { ValidationPipeOptions } from '@nestjs/common';
import { DAY, type Duration, HOUR, MINUTE, SECOND } from '../clock/duration.js';
import { JWKS_FETCH, type JwksFetchOptions } from '../keys/jwks-options.js';
import type { KeyProvider } from '../keys/key-provider.js';
import type { WebhookIssuer } from '../keys/issuer-list.js';
import {
  duration,
  either,
  filled,
  flag,
  hasMethods,
  instance,
  isOptions,
  list,
  object,
  oneOf,
  optional,
  orFalse,
  type Rule,
  rule,
  text,
  whole,
} from '../options/rules.js';
import { RETRY_SCHEDULE, type RetryScheduleOptions } from '../queue/retry-schedule.js';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import type { ReplayStore } from '../replay/replay-store.js';
import type { WebhookSpoolOptions } from '../request/body-spool.js';
import type { WebhookScheme } from '../request/webhook-scheme.js';
import { VERIFICATION } from '../token/verifier-options.js';
import { type WebhookProfile, WEBHOOK_PROFILES } from '../token/webhook-token.constants.js';
import { ISSUER } from './receiver-issuers.js';
import { DEFAULT_RECEIVER } from './receiver.constants.js';

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

const MiB = 1024 * 1024;

/** By its methods, so that a provider that extends another copy of the class is accepted. */
const isProvider = (value: unknown): boolean => hasMethods(value, ['load', 'refresh', 'subscribe']);

/** A path of plain segments, which both adapters match the same way. */
const MOUNTABLE_PATH = /^[A-Za-z0-9._~-]+(?:\/[A-Za-z0-9._~-]+)*$/;

/** Without leading and trailing slash. */
const path: Rule<string> = (value, at, name) => {
  if (typeof value !== 'string')
    return at.add(name, 'must be a string such as "webhooks"') as never;
  const plain = value.replace(/^\/+|\/+$/g, '');
  if (MOUNTABLE_PATH.test(plain)) return plain;
  return at.add(
    name,
    'must be plain segments, such as "webhooks" or "hooks/billing"; for a path with parameters, use @WebhookRoute() on a controller method',
  ) as never;
};

/** A provider's own durations, which are read with its defaults. */
const PROVIDER: Rule<{
  readonly provider: KeyProvider<readonly WebhookIssuer[]>;
  readonly ttl: number;
  readonly maxStale: number;
}> = (value, at, name) => {
  const provider = value as KeyProvider<readonly WebhookIssuer[]>;
  const inside = at.below(name);
  const ttl = optional(duration(), 5 * MINUTE)(provider.ttl, inside, 'ttl');
  const maxStale = optional(duration(), DAY)(provider.maxStale, inside, 'maxStale');
  if (maxStale < ttl) inside.add('maxStale', 'must be at least ttl');
  return { provider, ttl, maxStale };
};

const REPLAY = object<WebhookReplayOptions>()({
  store: optional(
    instance<ReplayStore>(
      'a ReplayStore: an object with reserve, extend, commit and release',
      'reserve',
      'extend',
      'commit',
      'release',
    ),
  ),
  onDuplicate: optional(oneOf('acknowledge', 'reject'), 'acknowledge'),
  // The longest time for which known senders retry.
  window: optional(duration(), 96 * HOUR),
  lease: optional(duration(), 30 * SECOND),
});

const SPOOL = object<WebhookSpoolOptions>()(
  {
    above: optional(whole(0, undefined, 'of bytes'), MiB),
    directory: optional(text('must be the path of a directory')),
    maxBytes: optional(whole(0, undefined, 'of bytes'), 1_024 * MiB),
  },
  { form: 'an object: { above, directory, maxBytes }, or false for memory' },
);

export const RECEIVER = object<WebhookReceiverOptions>()(
  {
    name: optional(text(), DEFAULT_RECEIVER),
    path: optional(path),
    issuers: optional(
      either(
        isProvider,
        PROVIDER,
        list(
          ISSUER,
          'must be a list, also with one issuer: [{ issuer, secret }]; or an instance of a class that extends KeyProvider',
        ),
      ),
      [],
    ),
    sender: optional(
      instance<WebhookScheme>(
        "a sender of 'nestjs-webhook-token/senders', such as stripe({ secret })",
        'hasCredentials',
        'verify',
        'isAuthenticated',
        'claims',
      ),
    ),
    jwksFetch: filled(JWKS_FETCH),
    ...VERIFICATION,
    profiles: optional(
      list(
        oneOf(...WEBHOOK_PROFILES),
        "must be a list: ['webhook-token', 'swt-draft-00', 'swt-draft-02']",
        { min: 1 },
      ),
    ),
    requireHash: optional(flag, true),
    maxBodyBytes: optional(whole(0, undefined, 'of bytes'), 32 * MiB),
    spool: filled(orFalse(SPOOL)),
    replay: filled(REPLAY),
    acknowledge: optional(oneOf('handled', 'queued'), 'handled'),
    queue: optional(
      instance<WebhookQueue>(
        'a WebhookQueue, such as PostgresQueue',
        'enqueue',
        'consume',
        'redeliver',
        'stop',
      ),
    ),
    retry: optional(object<RetryScheduleOptions>()(RETRY_SCHEDULE)),
    unhandledEvent: optional(oneOf('acknowledge', 'reject'), 'acknowledge'),
    validation: optional(
      rule<ValidationPipeOptions | false>(
        (value) => value === false || isOptions(value),
        'must be the options of a ValidationPipe, or false for no validation',
      ),
    ),
    allowWeakSecrets: optional(flag, false),
  },
  {
    form: 'an object: { path, issuers }, or a list of such objects',
    across({ acknowledge, queue, retry, replay, path: mounted, sender, maxBodyBytes, spool }, at) {
      if (spool !== false && !at.has('spool', 'maxBodyBytes')) {
        at.require(
          maxBodyBytes <= Math.max(spool.above, spool.maxBytes),
          'spool.maxBytes',
          `is ${spool.maxBytes}, and maxBodyBytes is ${maxBodyBytes}: a body of a size in between could never be received; lower maxBodyBytes, or raise spool.maxBytes`,
        );
      }
      at.require(
        sender?.poll === undefined || at.has('replay') || replay.onDuplicate === 'acknowledge',
        'replay.onDuplicate',
        "must be 'acknowledge' with a sender that is polled, because it returns an event until it is acknowledged",
      );
      if (acknowledge === 'handled') {
        const remedy = "only applies with acknowledge: 'queued'; set that, or remove this option";
        at.require(queue === undefined, 'queue', remedy);
        at.require(retry === undefined, 'retry', remedy);
      }
      if (acknowledge !== 'queued') return;
      at.require(
        mounted !== undefined || sender?.poll !== undefined || at.has('path'),
        'path',
        "is required with acknowledge: 'queued', because only events that arrive on this path are queued",
      );
      at.require(
        queue !== undefined || at.has('queue'),
        'queue',
        "is required with acknowledge: 'queued': set it to a durable WebhookQueue that serves only this receiver, such as a PostgresQueue",
      );
    },
  },
);
