import type { ConfigurationFaults } from '../options/configuration-faults.js';
import { profileFault, rulesOf } from '../token/profiles/profile-choice.js';
import type { WebhookProfile } from '../token/webhook-token.constants.js';
import type { DestinationSigner } from '../publisher/options/publisher-options.interface.js';
import type { DeliveryMethod } from '../queue/webhook-delivery.interface.js';

/** How a destination is to be sent a wire format. */
interface ProfileUse {
  readonly profile: WebhookProfile;
  readonly method: DeliveryMethod;
  /** Absent where the key itself is at fault. */
  readonly signer: Pick<DestinationSigner, 'algorithms'> | undefined;
}

/** Says what is wrong with sending in a wire format, and what to do; `undefined` where nothing is. */
export function profileUseFault({ profile, method, signer }: ProfileUse): string | undefined {
  // Without a key the profile's name is still to be looked at.
  for (const algorithm of signer?.algorithms ?? [undefined]) {
    const fault = profileFault(profile, algorithm);
    if (fault !== undefined) return fault;
  }
  return method === 'HEAD' && !rulesOf(profile).methods.has('HEAD')
    ? `${profile} has no HEAD: leave the method 'auto', or choose another profile`
    : undefined;
}

/** Collects the fault of a configured destination. */
export function checkProfile(use: ProfileUse, faults: ConfigurationFaults): void {
  const fault = profileUseFault(use);
  if (fault !== undefined) faults.add('profile', fault);
}
