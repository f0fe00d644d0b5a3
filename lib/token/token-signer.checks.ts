import type { ConfigurationFault } from '../errors/webhook-configuration.error.js';
import { identifierRule, isIdentifier } from './identifier.js';
import type { TokenSignerOptions } from './token-signer.interface.js';
import { DEFAULT_TOKEN_LIFETIME } from './webhook-token.constants.js';

/** What is wrong with the options, whatever the key. */
export function sharedFaults({
  issuer,
  lifetime = DEFAULT_TOKEN_LIFETIME,
}: Omit<TokenSignerOptions, 'key'>): ConfigurationFault[] {
  const faults: ConfigurationFault[] = [];
  if (!isIdentifier(issuer)) faults.push({ path: 'issuer', message: identifierRule('issuer') });
  if (!Number.isInteger(lifetime) || lifetime <= 0) {
    faults.push({ path: 'lifetime', message: 'must be a positive whole number of seconds' });
  }
  return faults;
}
