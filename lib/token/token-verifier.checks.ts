import type { ConfigurationFault } from '../errors/webhook-configuration.error.js';
import type { TokenVerifierOptions } from './token-verifier.interface.js';
import { MAX_CLOCK_TOLERANCE, WEBHOOK_PROFILES } from './webhook-token.constants.js';

/** The audiences of a receiver; none where none is configured. */
export function audiences(audience: TokenVerifierOptions['audience']): readonly string[] {
  if (audience === undefined) return [];
  return typeof audience === 'string' ? [audience] : audience;
}

/** What is wrong with the options, the issuers and their keys aside. */
export function optionFaults(
  options: TokenVerifierOptions,
  clockTolerance: number,
  maxTokenLifetime: number,
): ConfigurationFault[] {
  const faults: ConfigurationFault[] = [];
  // Finite first: the text '60' compares like a number, and then `exp + '60'` never expires.
  if (!(
    Number.isFinite(clockTolerance) &&
    clockTolerance >= 0 &&
    clockTolerance <= MAX_CLOCK_TOLERANCE
  )) {
    faults.push({
      path: 'clockTolerance',
      message: `must be 0 to ${MAX_CLOCK_TOLERANCE} seconds: a wider tolerance keeps expired tokens alive`,
    });
  }
  if (!(Number.isFinite(maxTokenLifetime) && maxTokenLifetime > 0)) {
    faults.push({ path: 'maxTokenLifetime', message: 'must be a positive number of seconds' });
  }
  const unknown = options.profiles?.filter((profile) => !WEBHOOK_PROFILES.includes(profile)) ?? [];
  if (options.profiles?.length === 0 || unknown.length > 0) {
    faults.push({
      path: 'profiles',
      message: `must name at least one of the profiles this version has: ${WEBHOOK_PROFILES.join(', ')}`,
    });
  }
  if (audiences(options.audience).some((one) => typeof one !== 'string' || one === '')) {
    faults.push({ path: 'audience', message: 'must be a non-empty text, or a list of them' });
  }
  return faults;
}
