import { WebhookConfigurationError } from '../errors/webhook.error.js';
import type { ResolvedReceiver, ResolvedReceivers } from './receiver-options.interface.js';
import { DEFAULT_RECEIVER } from './receiver.constants.js';

/**
 * Finds a receiver by its name.
 *
 * @param name - default: the only receiver, or the one named `'default'`
 * @throws {@link WebhookConfigurationError}
 */
export function findReceiver(receivers: ResolvedReceivers, name?: string): ResolvedReceiver {
  const sole = receivers.size === 1 ? receivers.values().next().value : undefined;
  const found =
    name === undefined ? (sole ?? receivers.get(DEFAULT_RECEIVER)) : receivers.get(name);
  if (found !== undefined) return found;
  const known = [...receivers.keys()].map((one) => `"${one}"`).join(', ') || 'none';
  throw new WebhookConfigurationError([
    {
      path: 'receiver',
      message: `receiver "${name ?? DEFAULT_RECEIVER}" is not configured (configured: ${known}); use one of them, or add it to WebhookModule.forRoot`,
    },
  ]);
}
