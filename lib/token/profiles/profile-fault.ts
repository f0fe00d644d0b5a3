import { rulesOf } from './profile-registry.js';
import {
  WEBHOOK_PROFILES,
  type SignatureAlgorithm,
  type WebhookProfile,
} from '../webhook-token.constants.js';

/**
 * Says what is wrong with signing a wire format by an algorithm, and what to do.
 *
 * @param alg - `undefined` where the key itself is at fault
 * @returns `undefined` where nothing is
 */
export function profileFault(
  profile: WebhookProfile,
  alg: SignatureAlgorithm | undefined,
): string | undefined {
  if (!WEBHOOK_PROFILES.includes(profile)) return `must be one of ${WEBHOOK_PROFILES.join(', ')}`;
  const { algorithms } = rulesOf(profile);
  return alg === undefined || algorithms.has(alg)
    ? undefined
    : `${profile} has no ${alg}: give a key for one of ${[...algorithms].join(', ')}`;
}
