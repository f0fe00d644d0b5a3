import { WebhookConfigurationError, type ConfigurationProblem } from '../errors/webhook.error.js';
import { keySetProblems } from '../signing/webhook.jwks.js';
import { publicationProblems } from '../signing/published-keys.js';
import { profileUseProblem, type ResolvedEndpointSettings } from '../sending/endpoint.js';
import type { HeldSigningKeys } from '../signing/provided-signing-keys.js';
import type { ResolvedPublisherOptions } from './publisher-options.resolver.js';

/** Injection token of what is there once the keys are. */
export const SIGNING_KEYS = Symbol('nestjs-webhook-token/signing-keys');

/**
 * Loads the keys of providers, and checks what could not be checked without them.
 *
 * @throws {@link WebhookConfigurationError} with every problem of the keys; and whatever a provider throws
 */
export async function loadSigningKeys({
  provided,
  ownKeys,
  jwks,
  defaults,
  endpoints,
}: ResolvedPublisherOptions): Promise<true> {
  await Promise.all(provided.map((keys) => keys.start()));
  const problems = [
    ...(jwks === undefined ? [] : publicProblems(ownKeys.map(({ known }) => known))),
    ...profileProblems(defaults, 'publisher'),
    ...endpoints.flatMap((endpoint, index) =>
      // What an endpoint takes over from the publisher is reported there, once.
      endpoint.signer === defaults.signer && endpoint.profile === defaults.profile
        ? []
        : profileProblems(endpoint, `publisher.endpoints[${index}]`),
    ),
  ];
  if (problems.length > 0) throw new WebhookConfigurationError(problems);
  return true;
}

function publicProblems(lists: readonly HeldSigningKeys[]): ConfigurationProblem[] {
  // One provider may serve several issuers; whether its keys are published is only seen here.
  const single = lists.flatMap(({ keys }) => publicationProblems(keys));
  const messages =
    single.length > 0 ? single.map(({ message }) => `a key ${message}`) : keySetProblems(lists);
  return messages.map((message) => ({ path: 'publisher.jwks', message }));
}

function profileProblems(
  destination: ResolvedEndpointSettings,
  path: string,
): ConfigurationProblem[] {
  const message = profileUseProblem(destination);
  return message === undefined ? [] : [{ path: `${path}.profile`, message }];
}
