import { SystemClock } from './clock/system-clock.js';
import type { WebhookClock } from './clock/webhook-clock.js';
import { ConfigurationFaults } from './errors/configuration-faults.js';
import {
  WebhookConfigurationError,
  type ConfigurationFault,
} from './errors/webhook-configuration.error.js';
import type { ResolvedPublisherOptions } from './publisher/options/publisher-options.interface.js';
import { resolvePublisherOptions } from './publisher/options/publisher-options.resolver.js';
import type { ResolvedReceivers } from './receiver/receiver-options.interface.js';
import { resolveReceivers } from './receiver/receiver-options.resolver.js';
import type { WebhookModuleOptions } from './webhook-module-options.interface.js';

/** Milliseconds. */
const DEFAULT_SHUTDOWN_TIMEOUT = 10_000;

/** The module's options, checked and filled. */
export interface ResolvedWebhookOptions {
  readonly receivers: ResolvedReceivers;
  /** Absent where nothing is published. */
  readonly publisher: ResolvedPublisherOptions | undefined;
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
  const clock = options.clock ?? new SystemClock();
  const faults: ConfigurationFault[] = [];
  const shutdownTimeout = new ConfigurationFaults('', faults).duration(
    'shutdownTimeout',
    options.shutdownTimeout,
    DEFAULT_SHUTDOWN_TIMEOUT,
  );
  const receiving = resolveReceivers(options.receiver, clock);
  const publishing =
    options.publisher === undefined
      ? { resolved: undefined, faults: [] }
      : resolvePublisherOptions(options.publisher, {
          clock,
          production: process.env['NODE_ENV'] === 'production',
        });
  faults.push(...receiving.faults, ...publishing.faults);
  if (faults.length > 0) throw new WebhookConfigurationError(faults);
  return {
    receivers: receiving.receivers,
    publisher: publishing.resolved,
    clock,
    shutdownTimeout,
  };
}
