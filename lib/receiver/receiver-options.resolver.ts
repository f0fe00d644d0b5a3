import { parseDuration } from '../clock/duration.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import {
  WebhookConfigurationError,
  type ConfigurationFault,
} from '../errors/webhook-configuration.error.js';
import { MemoryReplayStore } from '../replay/memory-replay.store.js';
import { eventPatternFault } from '../token/event-name.js';
import { createTokenVerifier, type TokenVerifier } from '../token/token-verifier.js';
import { DEFAULT_CLOCK_TOLERANCE } from '../token/webhook-token.constants.js';
import { LeaseKeeper } from './lease-keeper.js';
import type {
  ResolvedReceiver,
  ResolvedReceivers,
  WebhookIssuer,
  WebhookReceiverOptions,
} from './receiver-options.interface.js';
import { DEFAULT_RECEIVER } from './receiver.constants.js';

const DEFAULT_MAX_BODY_BYTES = 32 * 1024 * 1024;
const DEFAULT_REPLAY_WINDOW = '96h';
const DEFAULT_REPLAY_LEASE = '30s';

/** A path of plain segments: what both adapters understand alike. */
const MOUNTABLE_PATH = /^[A-Za-z0-9._~-]+(?:\/[A-Za-z0-9._~-]+)*$/;

/**
 * Checks the receivers' options once and fills them.
 *
 * @param options - as given to the module: none, one, or an array of named ones
 * @returns the receivers, and everything that is wrong; with a fault, the receivers are not complete
 */
export function resolveReceivers(
  options: WebhookReceiverOptions | readonly WebhookReceiverOptions[] | undefined,
  clock: WebhookClock,
): { receivers: ResolvedReceivers; faults: ConfigurationFault[] } {
  const faults: ConfigurationFault[] = [];
  const receivers = new Map<string, ResolvedReceiver>();
  const mounted = new Map<string, string>();
  const list = options === undefined ? [] : Array.isArray(options) ? options : [options];
  (list as readonly WebhookReceiverOptions[]).forEach((one, index) => {
    const at = Array.isArray(options) ? `receiver[${index}]` : 'receiver';
    const fault = (path: string, message: string): void => {
      faults.push({ path: `${at}.${path}`, message });
    };
    const receiver = resolveReceiver(one, clock, fault);
    if (receiver === undefined) return;
    if (receivers.has(receiver.name)) {
      fault('name', `another receiver is named "${receiver.name}": give each its own name`);
    }
    if (receiver.path !== undefined && mounted.has(receiver.path)) {
      fault('path', `the receiver "${mounted.get(receiver.path)}" is mounted there already`);
    }
    receivers.set(receiver.name, receiver);
    if (receiver.path !== undefined) mounted.set(receiver.path, receiver.name);
  });
  return { receivers, faults };
}

type ReportFault = (path: string, message: string) => void;

function resolveReceiver(
  options: WebhookReceiverOptions,
  clock: WebhookClock,
  fault: ReportFault,
): ResolvedReceiver | undefined {
  const tokens = resolveTokens(options, clock, fault);
  const path = resolvePath(options.path, fault);
  const replayWindow = resolveDuration(
    'replay.window',
    options.replay?.window ?? DEFAULT_REPLAY_WINDOW,
    fault,
  );
  const replayLease = resolveDuration(
    'replay.lease',
    options.replay?.lease ?? DEFAULT_REPLAY_LEASE,
    fault,
  );
  const maxBodyBytes = options.maxBodyBytes ?? DEFAULT_MAX_BODY_BYTES;
  if (!Number.isSafeInteger(maxBodyBytes) || maxBodyBytes < 0) {
    fault('maxBodyBytes', 'must be a whole number of bytes');
  }
  const allowedEvents = resolveAllowedEvents(options.issuers ?? [], fault);
  if (tokens === undefined || replayWindow === undefined || replayLease === undefined)
    return undefined;
  const replayStore = options.replay?.store ?? new MemoryReplayStore({ clock });
  return {
    name: options.name ?? DEFAULT_RECEIVER,
    path,
    tokens,
    allowedEvents,
    clockTolerance: options.clockTolerance ?? DEFAULT_CLOCK_TOLERANCE,
    requireHash: options.requireHash ?? true,
    maxBodyBytes,
    replayStore,
    leases: new LeaseKeeper(replayStore, clock, replayLease),
    onDuplicate: options.replay?.onDuplicate ?? 'acknowledge',
    replayWindow,
    replayLease,
    unhandledEvent: options.unhandledEvent ?? 'acknowledge',
    validation: options.validation ?? {},
    clock,
    notices: notices(options, replayStore.scope),
  };
}

function resolveTokens(
  options: WebhookReceiverOptions,
  clock: WebhookClock,
  fault: ReportFault,
): TokenVerifier | undefined {
  try {
    return createTokenVerifier({
      issuers: options.issuers ?? [],
      clockTolerance: options.clockTolerance,
      maxTokenLifetime: options.maxTokenLifetime,
      audience: options.audience,
      profiles: options.profiles,
      allowWeakSecrets: options.allowWeakSecrets,
      now: () => clock.now(),
    });
  } catch (error) {
    if (!(error instanceof WebhookConfigurationError)) throw error;
    for (const { path, message } of error.faults) fault(path, message);
    return undefined;
  }
}

function resolvePath(path: string | undefined, fault: ReportFault): string | undefined {
  if (path === undefined) return undefined;
  const plain = path.replace(/^\/+|\/+$/g, '');
  if (!MOUNTABLE_PATH.test(plain)) {
    fault(
      'path',
      'must be plain segments like "webhooks" or "hooks/billing"; for a path with parameters put @WebhookEndpoint() on a controller method',
    );
  }
  return plain;
}

function resolveDuration(path: string, value: unknown, fault: ReportFault): number | undefined {
  const milliseconds = parseDuration(value);
  if (milliseconds === undefined || milliseconds === 0) {
    fault(path, 'must be a positive number of milliseconds or a text like "30s", "5m", "96h"');
    return undefined;
  }
  return milliseconds;
}

function resolveAllowedEvents(
  issuers: readonly WebhookIssuer[],
  fault: ReportFault,
): ReadonlyMap<string, readonly string[]> {
  const allowed = new Map<string, readonly string[]>();
  issuers.forEach(({ issuer, events }, index) => {
    if (events === undefined) return;
    events.forEach((pattern, i) => {
      const message = eventPatternFault(pattern);
      if (message !== undefined) fault(`issuers[${index}].events[${i}]`, message);
    });
    allowed.set(issuer, events);
  });
  return allowed;
}

function notices(options: WebhookReceiverOptions, scope: 'process' | 'shared'): readonly string[] {
  const name = options.name ?? DEFAULT_RECEIVER;
  const lines: string[] = [];
  if (scope === 'process') {
    lines.push(
      `Receiver "${name}" remembers handled events in this process only. Several instances need a shared ReplayStore (option replay.store), or a copy sent to another one is handled again.`,
    );
  }
  if (options.requireHash === false) {
    lines.push(
      `Receiver "${name}" takes bodies that no hash authenticates (requireHash: false): check event.bodyVerified before you trust one.`,
    );
  }
  return lines;
}
