import { WebhookEventCatalog } from './events/event-catalog.js';
import { SystemClock, type WebhookClock } from './clock/webhook-clock.js';
import { ConfigurationFaults } from './options/configuration-faults.js';
import { WebhookConfigurationError, type ConfigurationProblem } from './errors/webhook.error.js';
import type { ResolvedPublisherOptions } from './publisher/publisher-options.resolver.js';
import { resolvePublisherOptions } from './publisher/publisher-options.resolver.js';
import { checkShape, hasMethods, isOptions, type OptionShape } from './options/option-shape.js';
import { type ResolvedInbox, resolveInbox } from './receiver/inbox/inbox-options.js';
import type { ResolvedReceivers } from './receiver/receiver-options.interface.js';
import { resolveReceivers } from './receiver/receiver-options.resolver.js';
import type { WebhookModuleOptions } from './webhook-module-options.interface.js';

/** Milliseconds. */
const DEFAULT_SHUTDOWN_TIMEOUT = 10_000;

const MODULE: OptionShape<WebhookModuleOptions> = {
  receiver: undefined,
  publisher: { holds: isOptions, message: 'must be an object: { issuer, secret, endpoints }' },
  events: {
    holds: (value) => value instanceof WebhookEventCatalog,
    message: 'must be the result of defineEvents',
  },
  inbox: undefined,
  checkStores: {
    holds: (value) => typeof value === 'boolean',
    message: 'must be a boolean',
  },
  shutdownTimeout: undefined,
  clock: {
    holds: (value) => hasMethods(value, ['now', 'wakeAt']),
    message:
      'must be a WebhookClock: an object with now and wakeAt; leave it out for the system clock',
  },
};

/** The module's options, checked and filled. */
export interface ResolvedWebhookOptions {
  readonly receivers: ResolvedReceivers;
  /** Absent if nothing is published. */
  readonly publisher: ResolvedPublisherOptions | undefined;
  /** Absent if the application has defined none. */
  readonly events: WebhookEventCatalog | undefined;
  /** Absent if nothing is recorded. */
  readonly inbox: ResolvedInbox | undefined;
  readonly checkStores: boolean;
  readonly clock: WebhookClock;
  /** Milliseconds. */
  readonly shutdownTimeout: number;
}

/**
 * Checks and fills the options once.
 *
 * @throws {@link WebhookConfigurationError} with every fault of every part
 */
export function resolveWebhookOptions(options: WebhookModuleOptions): ResolvedWebhookOptions {
  if (!isOptions(options)) throw noOptions();
  const all: ConfigurationProblem[] = [];
  const faults = new ConfigurationFaults('', all);
  const {
    receiver,
    publisher,
    events,
    inbox,
    checkStores = true,
    clock = new SystemClock(),
    shutdownTimeout: shutdown,
  } = checkShape(options, MODULE, faults);
  const shutdownTimeout = faults.duration('shutdownTimeout', shutdown, DEFAULT_SHUTDOWN_TIMEOUT);
  const resolvedInbox = resolveInbox(inbox, clock, faults);
  const receiving = resolveReceivers(receiver, clock, events);
  const publishing =
    publisher === undefined
      ? { resolved: undefined, faults: [] }
      : resolvePublisherOptions(publisher, {
          clock,
          events,
          production: process.env['NODE_ENV'] === 'production',
        });
  all.push(...receiving.faults, ...publishing.faults);
  checkQueues(receiving.receivers, publishing.resolved, faults);
  faults.require(
    all.length > 0 || receiver !== undefined || publisher !== undefined,
    'WebhookModule',
    'nothing is configured; set "receiver" to receive webhooks, "publisher" to send them, or both',
  );
  if (all.length > 0) throw new WebhookConfigurationError(all);
  return {
    receivers: receiving.receivers,
    publisher: publishing.resolved,
    events,
    inbox: resolvedInbox,
    checkStores,
    clock,
    shutdownTimeout,
  };
}

/** A queue has one consumer: two would take each other's deliveries. */
function checkQueues(
  receivers: ResolvedReceivers,
  publisher: ResolvedPublisherOptions | undefined,
  faults: ConfigurationFaults,
): void {
  const owners = new Map<unknown, string>();
  if (publisher !== undefined) owners.set(publisher.queue, 'the publisher');
  for (const { name, queued } of receivers.values()) {
    if (queued === undefined) continue;
    const owner = owners.get(queued.queue);
    faults.require(
      owner === undefined,
      `receiver "${name}".queue`,
      `is also the queue of ${owner}; create another one, for example on the same database under another name`,
    );
    owners.set(queued.queue, `receiver "${name}"`);
  }
}

function noOptions(): WebhookConfigurationError {
  return new WebhookConfigurationError([
    {
      path: 'WebhookModule',
      message:
        'has no options; pass an object to forRoot, or return one from the factory of forRootAsync',
    },
  ]);
}
