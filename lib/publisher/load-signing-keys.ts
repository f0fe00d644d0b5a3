import { WebhookConfigurationError, type ConfigurationProblem } from '../errors/webhook.error.js';
import { keySetFaults } from '../signing/webhook.jwks.js';
import { publicationFaults } from '../signing/published-keys.js';
import { profileUseFault, type ResolvedEndpointSettings } from '../sending/endpoint.js';
import type { HeldSigningKeys } from '../signing/provided-signing-keys.js';
import type { ResolvedPublisherOptions } from './publisher-options.resolver.js';

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
  defaults,
  endpoints,
}: ResolvedPublisherOptions): Promise<true> {
  await Promise.all(provided.map((keys) => keys.start()));
  const faults = [
    ...(jwks === undefined ? [] : publicFaults(ownKeys.map(({ known }) => known))),
    ...profileFaults(defaults, 'publisher'),
    ...endpoints.flatMap((endpoint, index) =>
      // What an endpoint takes over from the publisher is at fault there, once.
      endpoint.signer === defaults.signer && endpoint.profile === defaults.profile
        ? []
        : profileFaults(endpoint, `publisher.endpoints[${index}]`),
    ),
  ];
  if (faults.length > 0) throw new WebhookConfigurationError(faults);
  return true;
}

function publicFaults(lists: readonly HeldSigningKeys[]): ConfigurationProblem[] {
  // One provider may serve several issuers; whether its keys are published is only seen here.
  const single = lists.flatMap(({ keys }) => publicationFaults(keys));
  const messages =
    single.length > 0 ? single.map(({ message }) => `a key ${message}`) : keySetFaults(lists);
  return messages.map((message) => ({ path: 'publisher.jwks', message }));
}

function profileFaults(
  destination: ResolvedEndpointSettings,
  path: string,
): ConfigurationProblem[] {
  const message = profileUseFault(destination);
  return message === undefined ? [] : [{ path: `${path}.profile`, message }];
}
