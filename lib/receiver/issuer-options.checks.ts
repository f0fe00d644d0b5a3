import type { ConfigurationFaults } from '../options/configuration-faults.js';
import type { WebhookIssuer } from '../keys/webhook-issuer.interface.js';
import { checkShape, isOptions, type OptionShape } from '../options/option-shape.js';

const isText = (value: unknown): boolean => typeof value === 'string' && value !== '';

const ISSUER: OptionShape<WebhookIssuer> = {
  issuer: undefined,
  secret: undefined,
  keys: { holds: Array.isArray, message: 'must be a list: [{ kid, alg, key }], with one key too' },
  jwksUri: undefined,
  events: {
    holds: (value) => Array.isArray(value) && value.every(isText),
    message: "must be a list of event patterns: ['order.*']",
  },
};

/** Stands in for an issuer that is none, so that the others keep their places in the list. */
const NO_ISSUER: WebhookIssuer = { issuer: '' };

/** Checks that issuers are what their type says, wherever they come from. */
export function checkIssuers(
  issuers: readonly unknown[],
  faults: ConfigurationFaults,
): readonly WebhookIssuer[] {
  return issuers.map((issuer, index) => checkIssuer(issuer, faults.below(`issuers[${index}]`)));
}

function checkIssuer(issuer: unknown, faults: ConfigurationFaults): WebhookIssuer {
  if (!isOptions(issuer)) {
    faults.add('', 'must be an object: { issuer, secret }');
    return NO_ISSUER;
  }
  const { keys, secret, jwksUri } = issuer as Partial<WebhookIssuer>;
  const fit = { ...NO_ISSUER, ...checkShape(issuer, ISSUER, faults) };
  const missing = (value: unknown): string =>
    `the secret of ${isText(fit.issuer) ? `"${fit.issuer}"` : 'this issuer'} is ${String(value)}: is the environment variable set?`;
  const alone = keys === undefined && jwksUri === undefined;
  if (secret === null || (secret === undefined && alone)) {
    faults.add('secret', missing(secret));
  }
  if (Array.isArray(secret)) {
    secret.forEach((one: unknown, index) => {
      if (one === undefined || one === null) faults.add(`secret[${index}]`, missing(one));
    });
  }
  return fit;
}
