import type { ValidationPipeOptions } from '@nestjs/common';
import { DAY, HOUR, MINUTE, SECOND } from '../clock/duration.js';
import { JWKS_FETCH } from '../keys/jwks-options.js';
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
  seconds,
  text,
  whole,
} from '../options/rules.js';
import { RETRY_SCHEDULE, type RetryScheduleOptions } from '../queue/retry-schedule.js';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import type { ReplayStore } from '../replay/replay-store.js';
import type { WebhookSpoolOptions } from '../request/body-spool.js';
import type { WebhookScheme } from '../request/webhook-scheme.js';
import {
  DEFAULT_CLOCK_TOLERANCE,
  DEFAULT_MAX_JSON_MEMBERS,
  WEBHOOK_PROFILES,
} from '../token/webhook-token.constants.js';
import { ISSUER } from './receiver-issuers.js';
import type { WebhookReceiverOptions, WebhookReplayOptions } from './receiver-options.interface.js';
import { DEFAULT_RECEIVER } from './receiver.constants.js';

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

const isAudience = (value: unknown): boolean =>
  Array.isArray(value)
    ? value.length > 0 && value.every(isAudience)
    : typeof value === 'string' && value !== '';

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
    profiles: optional(
      list(
        oneOf(...WEBHOOK_PROFILES),
        "must be a list: ['webhook-token', 'swt-draft-00', 'swt-draft-02']",
      ),
    ),
    audience: optional(
      rule<string | readonly string[]>(
        isAudience,
        'must be a non-empty string or a list of them; omit it to have no audience',
      ),
    ),
    clockTolerance: optional(seconds, DEFAULT_CLOCK_TOLERANCE),
    maxTokenLifetime: optional(seconds),
    requireHash: optional(flag, true),
    maxBodyBytes: optional(whole(0, undefined, 'of bytes'), 32 * MiB),
    maxJsonMembers: optional(
      rule<number>(
        (value) => Number.isSafeInteger(value) && (value as number) > 0,
        'must be a positive whole number',
      ),
      DEFAULT_MAX_JSON_MEMBERS,
    ),
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
    across({ acknowledge, queue, retry, replay, path: mounted, sender }, at) {
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
