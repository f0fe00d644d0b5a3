import { Logger } from '@nestjs/common';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { ConfigurationFaults } from '../options/configuration-faults.js';
import { WebhookConfigurationError, type ConfigurationProblem } from '../errors/webhook.error.js';
import type { WebhookEventCatalog } from '../events/event-catalog.js';
import { resolveJwksOptions } from '../keys/jwks-options.js';
import { RemoteKeySets } from '../keys/remote-key-sets.js';
import type { KeyLog } from '../keys/key-log.js';
import { MemoryReplayStore } from '../replay/memory-replay.store.js';
import type { KeySource } from '../token/keys/key-source.js';
import { createTokenVerifier, type TokenVerifier } from '../token/token-verifier.js';
import {
  DEFAULT_CLOCK_TOLERANCE,
  DEFAULT_MAX_JSON_MEMBERS,
} from '../token/webhook-token.constants.js';
import { BodySpool } from '../request/body-spool.js';
import { resolveQueuedEvents, type QueuedEvents } from './queued/queued-events.resolver.js';
import { PayloadValidator } from './handlers/payload-validator.js';
import { LeaseKeeper } from './replay/lease-keeper.js';
import { listedIssuers, providedIssuers, type ReceiverIssuers } from './receiver-issuers.js';
import { checkReceiverOptions, isList } from './receiver-options.checks.js';
import type {
  ResolvedReceiver,
  ResolvedReceivers,
  WebhookReceiverOptions,
} from './receiver-options.interface.js';
import { DEFAULT_RECEIVER } from './receiver.constants.js';

const DEFAULT_MAX_BODY_BYTES = 32 * 1024 * 1024;
const DEFAULT_SPOOL_ABOVE = 1024 * 1024;
const DEFAULT_SPOOL_BYTES = 1024 * 1024 * 1024;
/** Milliseconds: 96 hours, the longest time for which known senders retry. */
const DEFAULT_REPLAY_WINDOW = 96 * 3_600_000;
/** Milliseconds. */
const DEFAULT_REPLAY_LEASE = 30_000;

/** Members that a token's claims may have besides those of the data. */
const MEMBERS_AROUND_DATA = 64;

/** Milliseconds, for a KeyProvider without its own. */
const DEFAULT_TTL = 300_000;
const DEFAULT_MAX_STALE = 86_400_000;

/** A path of plain segments, which both adapters match the same way. */
const MOUNTABLE_PATH = /^[A-Za-z0-9._~-]+(?:\/[A-Za-z0-9._~-]+)*$/;

/**
 * Checks the receivers' options and applies the defaults.
 *
 * @param options - of the module: none, one, or a list of named ones
 * @param events - the events that the application has defined
 * @returns the receivers, and all faults; with a fault, the receivers are incomplete
 */
export function resolveReceivers(
  options: WebhookReceiverOptions | readonly WebhookReceiverOptions[] | undefined,
  clock: WebhookClock,
  events?: WebhookEventCatalog,
): { receivers: ResolvedReceivers; faults: ConfigurationProblem[] } {
  const all: ConfigurationProblem[] = [];
  const receivers = new Map<string, ResolvedReceiver>();
  const mounted = new Map<string, string>();
  const list = options === undefined ? [] : Array.isArray(options) ? options : [options];
  // Array.from, since forEach would skip a hole.
  Array.from(list as readonly unknown[]).forEach((one, index) => {
    const faults = new ConfigurationFaults(
      Array.isArray(options) ? `receiver[${index}]` : 'receiver',
      all,
    );
    const receiver = resolveReceiver(one, { clock, events }, faults);
    if (receiver === undefined) return;
    const { name, path } = receiver;
    faults.require(
      !receivers.has(name),
      'name',
      `another receiver is named "${name}"; give each its own name`,
    );
    receivers.set(name, receiver);
    if (path === undefined) return;
    faults.require(
      !mounted.has(path),
      'path',
      `"${path}" is taken by receiver "${mounted.get(path)}"; choose another path`,
    );
    mounted.set(path, name);
  });
  return { receivers, faults: all };
}

function resolveReceiver(
  given: unknown,
  { clock, events }: Pick<ResolvedReceiver, 'clock' | 'events'>,
  faults: ConfigurationFaults,
): ResolvedReceiver | undefined {
  const { options, faults: misshapen, reported } = checkReceiverOptions(given);
  for (const { path, message } of misshapen) faults.add(path, message);
  const { replay = {} } = options;
  const issuers = resolveIssuers(options, clock, faults, reported);
  const tokens = resolveTokens(options, issuers.keys, clock, faults, reported);
  const path = resolvePath(options.path, faults);
  const replayFaults = faults.below('replay');
  const replayWindow = replayFaults.duration('window', replay.window, DEFAULT_REPLAY_WINDOW);
  const replayLease = replayFaults.duration('lease', replay.lease, DEFAULT_REPLAY_LEASE);
  const maxBodyBytes = options.maxBodyBytes ?? DEFAULT_MAX_BODY_BYTES;
  faults.require(
    Number.isSafeInteger(maxBodyBytes) && maxBodyBytes >= 0,
    'maxBodyBytes',
    'must be a whole number of bytes',
  );
  // A malformed option would also be reported as missing.
  const queued = misshapen.length > 0 ? undefined : resolveQueuedEvents(options, faults);
  if (tokens === undefined || misshapen.length > 0) return undefined;
  const replayStore = replay.store ?? new MemoryReplayStore({ clock });
  return {
    name: options.name ?? DEFAULT_RECEIVER,
    path,
    tokens,
    allowedEvents: issuers.allowedEvents,
    allowedContentTypes: issuers.allowedContentTypes,
    issuers,
    clockTolerance: options.clockTolerance ?? DEFAULT_CLOCK_TOLERANCE,
    requireHash: options.requireHash ?? true,
    maxBodyBytes,
    maxJsonMembers: options.maxJsonMembers ?? DEFAULT_MAX_JSON_MEMBERS,
    spool: resolveSpool(options.spool),
    replayStore,
    leases: new LeaseKeeper(replayStore, clock, replayLease),
    onDuplicate: replay.onDuplicate ?? 'acknowledge',
    replayWindow,
    replayLease,
    queued,
    unhandledEvent: options.unhandledEvent ?? 'acknowledge',
    validator: new PayloadValidator(options.validation),
    events,
    clock,
    notices: notices(options, replayStore.scope, queued),
  };
}

function resolveSpool(options: WebhookReceiverOptions['spool'] = {}): BodySpool | undefined {
  if (options === false) return undefined;
  const { above = DEFAULT_SPOOL_ABOVE, directory, maxBytes = DEFAULT_SPOOL_BYTES } = options;
  return new BodySpool({ above, directory, maxBytes });
}

function resolveIssuers(
  options: WebhookReceiverOptions,
  clock: WebhookClock,
  faults: ConfigurationFaults,
  reported: readonly string[],
): ReceiverIssuers {
  const { issuers, clockTolerance, allowWeakSecrets, jwksFetch = {} } = options;
  const logger = new Logger('WebhookReceiver');
  const log: KeyLog = (level, line) => logger[level](line);
  const context = {
    keyOptions: { clockTolerance, allowWeakSecrets },
    remote: new RemoteKeySets(resolveJwksOptions(jwksFetch, faults.below('jwksFetch')), clock, log),
    clock,
    log,
    name: `receiver "${options.name ?? DEFAULT_RECEIVER}"`,
  };
  if (isList(issuers)) {
    const listed = listedIssuers(issuers, context);
    addUnreported(listed.faults, faults, reported);
    return listed.issuers;
  }
  const providerFaults = faults.below('issuers');
  const ttl = providerFaults.duration('ttl', issuers.ttl, DEFAULT_TTL);
  const maxStale = providerFaults.duration('maxStale', issuers.maxStale, DEFAULT_MAX_STALE);
  providerFaults.require(maxStale >= ttl, 'maxStale', 'must be at least ttl');
  return providedIssuers(issuers, { ttl, maxStale }, context);
}

function resolveTokens(
  options: WebhookReceiverOptions,
  issuers: KeySource,
  clock: WebhookClock,
  faults: ConfigurationFaults,
  reported: readonly string[],
): TokenVerifier | undefined {
  try {
    return createTokenVerifier({
      issuers,
      clockTolerance: options.clockTolerance,
      maxTokenLifetime: options.maxTokenLifetime,
      maxJsonMembers: MEMBERS_AROUND_DATA + (options.maxJsonMembers ?? DEFAULT_MAX_JSON_MEMBERS),
      audience: options.audience,
      profiles: options.profiles,
      now: () => clock.now(),
    });
  } catch (error) {
    if (!(error instanceof WebhookConfigurationError)) throw error;
    addUnreported(error.problems, faults, reported);
    return undefined;
  }
}

/** Adds faults, but not a second one for an option that has one. */
function addUnreported(
  found: readonly ConfigurationProblem[],
  faults: ConfigurationFaults,
  reported: readonly string[],
): void {
  for (const { path, message } of found) {
    if (!reported.some((known) => concern(known, path))) faults.add(path, message);
  }
}

/** Whether two paths are equal, or one contains the other. */
function concern(one: string, other: string): boolean {
  const [short, long] = one.length < other.length ? [one, other] : [other, one];
  return short === '' || (long.startsWith(short) && /^(?:[.[]|$)/.test(long.slice(short.length)));
}

function resolvePath(path: string | undefined, faults: ConfigurationFaults): string | undefined {
  const plain = path?.replace(/^\/+|\/+$/g, '');
  faults.require(
    plain === undefined || MOUNTABLE_PATH.test(plain),
    'path',
    'must be plain segments, such as "webhooks" or "hooks/billing"; for a path with parameters, use @WebhookRoute() on a controller method',
  );
  return plain;
}

function notices(
  options: WebhookReceiverOptions,
  scope: 'process' | 'shared',
  queued: QueuedEvents | undefined,
): readonly string[] {
  const name = options.name ?? DEFAULT_RECEIVER;
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
  if (options.requireHash === false) {
    lines.push(
      `Receiver "${name}" accepts bodies that no hash covers (requireHash: false): check event.bodyVerified before you trust one.`,
    );
  }
  return lines;
}
