import type { Problems } from '../options/problems.js';
import { oneOf, type Rule } from '../options/rules.js';
import type { DeliveryMethod } from '../queue/webhook-delivery.js';
import type { EndpointSigner } from '../signing/endpoint-signer.js';
import { profileProblem, rulesOf } from '../token/profiles/profile.js';
import {
  DEFAULT_PROFILE,
  type SentProfile,
  STANDARD_WEBHOOKS,
  WEBHOOK_PROFILES,
  type WebhookProfile,
} from '../token/webhook-token.constants.js';

/** One request that is signed both ways. */
const TANDEM = [DEFAULT_PROFILE, STANDARD_WEBHOOKS] as const;
const SINGLE = oneOf(...WEBHOOK_PROFILES, STANDARD_WEBHOOKS);

/** The values of the option `profile`, in words. */
export const SENT_PROFILE_RULE = `must be one of ${[...WEBHOOK_PROFILES, STANDARD_WEBHOOKS].join(', ')}, or the list ['${TANDEM.join("', '")}']`;

/** Whether a value is a wire format, or the two that one request can be signed in. */
export function isSentProfile(value: unknown): value is SentProfile {
  return Array.isArray(value)
    ? value.length === TANDEM.length && TANDEM.every((one) => value.includes(one))
    : value === STANDARD_WEBHOOKS || WEBHOOK_PROFILES.includes(value as WebhookProfile);
}

export const SENT_PROFILE: Rule<SentProfile> = (value, at, name) => {
  if (!Array.isArray(value)) return SINGLE(value, at, name);
  return isSentProfile(value) ? value : (at.add(name, SENT_PROFILE_RULE) as never);
};

/** The wire format of the token; `undefined` if there is none. */
export function tokenProfile(profile: SentProfile): WebhookProfile | undefined {
  if (typeof profile !== 'string') return DEFAULT_PROFILE;
  return profile === STANDARD_WEBHOOKS ? undefined : profile;
}

export function isStandardWebhooks(profile: SentProfile): boolean {
  return profile === STANDARD_WEBHOOKS || typeof profile !== 'string';
}

/** The wire format by whose rule an event is named; Standard Webhooks has names of one segment, as the drafts do. */
export function namingProfile(profile: SentProfile): WebhookProfile {
  return tokenProfile(profile) ?? 'swt-draft-00';
}

/** The combination of wire format, method and keys that an endpoint uses. */
export interface ProfileUse {
  readonly profile: SentProfile;
  readonly method: DeliveryMethod;
  /** Absent if the key itself is invalid. */
  readonly signer: Pick<EndpointSigner, 'algorithms'> | undefined;
  /** Absent if it has no secret of Standard Webhooks. */
  readonly standardWebhooks?: unknown;
}

/** @returns why an endpoint cannot use its wire format, and the remedy; `undefined` if it can */
export function profileUseProblem(use: ProfileUse): string | undefined {
  const { profile, method, signer, standardWebhooks } = use;
  const token = tokenProfile(profile);
  // Without a key, the name of the profile is still checked.
  for (const algorithm of token === undefined ? [] : (signer?.algorithms ?? [undefined])) {
    const problem = profileProblem(token!, algorithm);
    if (problem !== undefined) return problem;
  }
  const isStandard = isStandardWebhooks(profile);
  if (isStandard && standardWebhooks === undefined) {
    return "standard-webhooks needs a secret of the endpoint: set standardWebhooks: { secret: 'whsec_…' }";
  }
  const hasHead = !isStandard && token !== undefined && rulesOf(token).methods.has('HEAD');
  return method === 'HEAD' && !hasHead
    ? `${isStandard ? STANDARD_WEBHOOKS : token} has no HEAD: leave the method 'auto', or choose another profile`
    : undefined;
}

/** Adds the problem of an endpoint, unless its profile, method or key has one already. */
export function checkProfile(use: ProfileUse, at: Problems): void {
  const isReported = at.has('profile', 'method', 'standardWebhooks');
  const problem = isReported ? undefined : profileUseProblem(use);
  if (problem !== undefined) at.add('profile', problem);
}
