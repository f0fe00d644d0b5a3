import { WebhookConfigurationError } from '../../errors/webhook-configuration.error.js';
import { keySetFaults } from '../jwks/key-set.js';
import type { ResolvedPublisherOptions } from '../options/publisher-options.interface.js';

/** Injection token of what is there once the keys are. */
export const SIGNING_KEYS = Symbol('nestjs-webhook-token/signing-keys');

/**
 * Loads the keys of providers, and checks what could not be checked without them.
 *
 * @throws {@link WebhookConfigurationError} with every fault of the keys; and whatever a provider throws
 */
export async function loadSigningKeys({
  provided,
  ownKeys,
  jwks,
}: ResolvedPublisherOptions): Promise<true> {
  await Promise.all(provided.map((keys) => keys.start()));
  const faults = jwks === undefined ? [] : keySetFaults(ownKeys.map(({ known }) => known));
  if (faults.length === 0) return true;
  throw new WebhookConfigurationError(
    faults.map((message) => ({ path: 'publisher.jwks', message })),
  );
}
