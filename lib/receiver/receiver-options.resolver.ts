import { Logger } from '@nestjs/common';
import { HOUR, MINUTE, SECOND } from '../clock/duration.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import type { WebhookEventCatalog } from '../events/event-catalog.js';
import { JWKS_FETCH, resolveJwksFetch } from '../keys/jwks-options.js';
import type { KeyLog } from '../keys/key-log.js';
import { RemoteKeySets } from '../keys/remote-key-sets.js';
import { Problems } from '../options/problems.js';
import { readOptions } from '../options/read-options.js';
import type { Read } from '../options/rules.js';
import { resolveRetrySchedule, type RetrySchedule } from '../queue/retry-schedule.js';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import { LeaseKeeper } from '../replay/lease-keeper.js';
import { MemoryReplayStore } from '../replay/memory-replay.store.js';
import { BodySpool } from '../request/body-spool.js';
import { webhookToken } from '../request/open-request.js';
import { tokenOrSender } from '../request/token-or-sender.js';
import type { WebhookScheme } from '../request/webhook-scheme.js';
import { ProfileChoice } from '../token/profiles/profile.js';
import { TokenVerifier } from '../token/token-verifier.js';
import { PayloadValidator } from './handlers/payload-validator.js';
import { listedIssuers, providedIssuers, type ReceiverIssuers } from './receiver-issuers.js';
import { RECEIVER, type WebhookReceiverOptions } from './receiver-options.js';
import { DEFAULT_RECEIVER } from './receiver.constants.js';

/** Members that a token's claims may have besides those of the data. */
const MEMBERS_AROUND_DATA = 64;

/**
 * Milliseconds before the first, second, … run: 10 runs over 41 h 42 min. The first ones are close together, because most failures are
 * a restarting database or service; the last ones leave a working day to fix a handler.
 */
const DEFAULT_RUNS: readonly number[] = [
  0,
  5 * SECOND,
  30 * SECOND,
  2 * MINUTE,
  10 * MINUTE,
  30 * MINUTE,
  2 * HOUR,
  5 * HOUR,
  10 * HOUR,
  24 * HOUR,
];

/** The queue of a receiver that acknowledges before it handles, and its retry schedule. */
export interface QueuedEvents {
  readonly queue: WebhookQueue;
  readonly retry: RetrySchedule;
}

/** A receiver, with its options checked and its keys parsed. Durations are milliseconds. */
export type ResolvedReceiver = Readonly<NonNullable<ReturnType<typeof resolveReceiver>>>;

export type ResolvedReceivers = ReadonlyMap<string, ResolvedReceiver>;

interface ReceiverContext {
  readonly clock: WebhookClock;
  /** Absent if the application has defined no events. */
  readonly events?: WebhookEventCatalog | undefined;
}

/**
 * Checks the receivers' options and applies the defaults.
 *
 * @param options - of the module: none, one, or a list of named ones
 * @param problems - to which those of the receivers are added; with one of them, the receivers are incomplete
 */
export function resolveReceivers(
  options: WebhookReceiverOptions | readonly WebhookReceiverOptions[] | undefined,
  context: ReceiverContext,
  problems: Problems,
): ResolvedReceivers {
  const receivers = new Map<string, ResolvedReceiver>();
  const mounted = new Map<string, string>();
  const add = (given: unknown, at: Problems): void => {
    const receiver = resolveReceiver(given, context, at);
    if (receiver === undefined) return;
    const { name, path } = receiver;
    const other = path === undefined ? undefined : mounted.get(path);
    if (receivers.has(name)) {
      at.add('name', `another receiver is named "${name}"; give each its own name`);
    }
    if (other !== undefined) {
      at.add('path', `"${path}" is taken by receiver "${other}"; choose another path`);
    }
    receivers.set(name, receiver);
    if (path !== undefined) mounted.set(path, name);
  };
  if (Array.isArray(options)) {
    // Array.from, since forEach would skip a hole.
    Array.from(options as unknown[]).forEach((one, index) => {
      add(one, problems.below(`receiver[${index}]`));
    });
  } else if (options !== undefined) {
    add(options, problems.below('receiver'));
  }
  return receivers;
}

function resolveReceiver(given: unknown, { clock, events }: ReceiverContext, at: Problems) {
  const options: Read<typeof RECEIVER> | undefined = RECEIVER(given, at, '');
  if (options === undefined) return undefined;
  const issuers = resolveIssuers(options, clock, at);
  if (at.has('')) return undefined;
  const { audience, clockTolerance, maxTokenLifetime, replay, spool, validation } = options;
  const replayStore = replay.store ?? new MemoryReplayStore({ clock });
  const { queue, retry } = options;
  const queued: QueuedEvents | undefined = queue && {
    queue,
    retry: resolveRetrySchedule(retry, DEFAULT_RUNS),
  };
  return {
    name: options.name,
    path: options.path,
    /** How requests are signed. */
    scheme: schemeOf(options),
    takesTokens: hasIssuers(options),
    tokens: new TokenVerifier({
      keys: issuers.keys,
      clockTolerance,
      maxTokenLifetime,
      maxJsonMembers: MEMBERS_AROUND_DATA + options.maxJsonMembers,
      audience,
      now: () => clock.now(),
      profiles: new ProfileChoice(options.profiles),
    }),
    issuers,
    clockTolerance,
    requireHash: options.requireHash,
    maxBodyBytes: options.maxBodyBytes,
    maxJsonMembers: options.maxJsonMembers,
    spool: spool === false ? undefined : new BodySpool(spool),
    replayStore,
    leases: new LeaseKeeper(replayStore, clock, replay.lease),
    onDuplicate: replay.onDuplicate,
    replayWindow: replay.window,
    replayLease: replay.lease,
    /** Absent if events are handled before they are acknowledged. */
    queued,
    unhandledEvent: options.unhandledEvent,
    validator: new PayloadValidator(validation),
    events,
    clock,
    notices: notices(options, replayStore.scope, queued),
  };
}

/** Without a sender, issuers are required. */
function hasIssuers({ issuers, sender }: Read<typeof RECEIVER>): boolean {
  return sender === undefined || 'provider' in issuers || issuers.length > 0;
}

function schemeOf(options: Read<typeof RECEIVER>): WebhookScheme {
  const { sender } = options;
  if (sender === undefined) return webhookToken;
  return hasIssuers(options) ? tokenOrSender(sender, soleIssuer(options)) : sender;
}

/** The only issuer; `undefined` if there are several, or if a provider may add one. */
function soleIssuer({ issuers }: Read<typeof RECEIVER>): string | undefined {
  return 'provider' in issuers || issuers.length !== 1 ? undefined : issuers[0]?.issuer;
}

function resolveIssuers(
  options: Read<typeof RECEIVER>,
  clock: WebhookClock,
  at: Problems,
): ReceiverIssuers {
  const { name, issuers, clockTolerance, allowWeakSecrets, jwksFetch } = options;
  // After a problem, use the defaults, so that the other options are checked too.
  const fetching = at.has('jwksFetch') ? readOptions(JWKS_FETCH, {}, '') : jwksFetch;
  const trusted: typeof issuers | undefined = issuers;
  const logger = new Logger('WebhookReceiver');
  const log: KeyLog = (level, line) => logger[level](line);
  const context = {
    keyOptions: { clockTolerance, allowWeakSecrets },
    remote: new RemoteKeySets(resolveJwksFetch(fetching), clock, log),
    clock,
    log,
    name: `receiver "${name}"`,
  };
  if (trusted !== undefined && 'provider' in trusted) {
    return providedIssuers(trusted.provider, trusted, context);
  }
  // An empty list has the problem that every webhook would be rejected, unless there is a sender.
  const problems = trusted === undefined || hasIssuers(options) ? at : new Problems();
  return listedIssuers(trusted ?? [], context, problems);
}

function notices(
  options: Read<typeof RECEIVER>,
  scope: 'process' | 'shared',
  queued: QueuedEvents | undefined,
): readonly string[] {
  const { name, requireHash, sender } = options;
  const lines: string[] = [];
  if (scope === 'process') {
    lines.push(
      `Receiver "${name}" stores handled events in this process only. With several instances, set replay.store to a shared ReplayStore, or a copy sent to another instance is handled again.`,
    );
  }
  if (queued?.queue.durable === false) {
    lines.push(
      `Receiver "${name}" acknowledges events and queues them in memory: a crash loses events that were acknowledged but not handled, and their senders do not repeat them. Use a durable queue.`,
    );
  }
  if (sender?.sharesIds === true && hasIssuers(options) && soleIssuer(options) === undefined) {
    lines.push(
      `Receiver "${name}" has a sender and not exactly one issuer, so an event that arrives once with a token and once as ${sender.name} is handled twice: give each partner its own path.`,
    );
  }
  if (!requireHash) {
    lines.push(
      `Receiver "${name}" accepts bodies that no hash covers (requireHash: false): check event.bodyVerified before you trust one.`,
    );
  }
  return lines;
}

/** @param name - default: the only receiver, or the one named `'default'` */
export function receiverNamed(
  receivers: ResolvedReceivers,
  name: string | undefined,
): ResolvedReceiver | undefined {
  if (name !== undefined) return receivers.get(name);
  return receivers.size === 1 ? [...receivers.values()][0] : receivers.get(DEFAULT_RECEIVER);
}

/** @throws {@link WebhookConfigurationError} if there is no such receiver */
export function findReceiver(receivers: ResolvedReceivers, name?: string): ResolvedReceiver {
  const found = receiverNamed(receivers, name);
  if (found !== undefined) return found;
  const message = unknownReceiver(receivers, name);
  throw new WebhookConfigurationError([{ path: 'receiver', message }]);
}

export function unknownReceiver(receivers: ResolvedReceivers, name = DEFAULT_RECEIVER): string {
  const known = [...receivers.keys()].map((one) => `"${one}"`).join(', ') || 'none';
  return `receiver "${name}" is not configured (configured: ${known}); use one of them, or add it to WebhookModule.forRoot`;
}
