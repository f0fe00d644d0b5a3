import { ConfigurationFaults } from '../errors/configuration-faults.js';
import type { ConfigurationFault } from '../errors/webhook-configuration.error.js';
import { checkShape, hasMethods, isOptions, type OptionShape } from './option-shape.js';
import type {
  WebhookIssuer,
  WebhookReceiverOptions,
  WebhookReplayOptions,
} from './receiver-options.interface.js';

const isText = (value: unknown): boolean => typeof value === 'string' && value !== '';
const isTexts = (value: unknown): boolean => Array.isArray(value) && value.every(isText);
const isBoolean = (value: unknown): boolean => typeof value === 'boolean';
const isOneOf =
  (...words: string[]) =>
  (value: unknown): boolean =>
    typeof value === 'string' && words.includes(value);

const RECEIVER: OptionShape<WebhookReceiverOptions> = {
  name: { holds: isText, message: 'must be a text that is not empty' },
  path: { holds: (value) => typeof value === 'string', message: 'must be a text like "webhooks"' },
  issuers: {
    holds: Array.isArray,
    message: 'must be a list: [{ issuer, secret }], with one issuer too',
  },
  profiles: {
    holds: Array.isArray,
    message: "must be a list: ['webhook-token', 'swt-draft-00', 'swt-draft-02']",
  },
  audience: {
    holds: (value) => isText(value) || (isTexts(value) && (value as []).length > 0),
    message:
      'must be a text or a list of texts, none of them empty; leave it out to have no audience',
  },
  clockTolerance: undefined,
  maxTokenLifetime: undefined,
  requireHash: {
    // A text from the environment is true even where it says 'false', and must not be guessed at.
    holds: isBoolean,
    message: 'must be true or false, not a text or a number',
  },
  maxBodyBytes: undefined,
  replay: { holds: isOptions, message: 'must be an object: { store, onDuplicate, window, lease }' },
  unhandledEvent: {
    holds: isOneOf('acknowledge', 'reject'),
    message: "must be 'acknowledge' or 'reject'",
  },
  validation: {
    holds: (value) => value === false || isOptions(value),
    message: 'must be the options of a ValidationPipe, or false for no validation',
  },
  allowWeakSecrets: { holds: isBoolean, message: 'must be true or false, not a text or a number' },
};

const REPLAY: OptionShape<WebhookReplayOptions> = {
  store: {
    holds: (value) => hasMethods(value, ['reserve', 'extend', 'commit', 'release']),
    message: 'must be a ReplayStore: an object with reserve, extend, commit and release',
  },
  onDuplicate: {
    holds: isOneOf('acknowledge', 'reject'),
    message: "must be 'acknowledge' or 'reject'",
  },
  window: undefined,
  lease: undefined,
};

const ISSUER: OptionShape<WebhookIssuer> = {
  issuer: undefined,
  secret: undefined,
  keys: { holds: Array.isArray, message: 'must be a list: [{ kid, alg, key }], with one key too' },
  events: { holds: isTexts, message: "must be a list of event patterns: ['order.*']" },
};

/** Stands in for an issuer that is none, so that the others keep their places in the list. */
const NO_ISSUER: WebhookIssuer = { issuer: '' };

/**
 * Checks that a receiver's options are what their types say, before anything is done with them.
 *
 * @returns the options that are, and the faults of the others, with paths below the receiver
 */
export function checkReceiverOptions(options: unknown): {
  options: WebhookReceiverOptions;
  faults: readonly ConfigurationFault[];
} {
  const faults = new ConfigurationFaults('');
  if (!isOptions(options)) {
    faults.add('', 'must be an object: { path, issuers }, or a list of such objects');
    return { options: { issuers: [] }, faults: faults.all };
  }
  const fit = checkShape(options, RECEIVER, faults);
  const issuers = (fit.issuers ?? []).map((issuer, index) =>
    checkIssuer(issuer, faults.below(`issuers[${index}]`)),
  );
  const replay = checkShape(fit.replay ?? {}, REPLAY, faults.below('replay'));
  return { options: { ...fit, issuers, replay }, faults: faults.all };
}

function checkIssuer(issuer: unknown, faults: ConfigurationFaults): WebhookIssuer {
  if (!isOptions(issuer)) {
    faults.add('', 'must be an object: { issuer, secret }');
    return NO_ISSUER;
  }
  const { keys, secret } = issuer as Partial<WebhookIssuer>;
  const fit = { ...NO_ISSUER, ...checkShape(issuer, ISSUER, faults) };
  const missing = (value: unknown): string =>
    `the secret of ${isText(fit.issuer) ? `"${fit.issuer}"` : 'this issuer'} is ${String(value)}: is the environment variable set?`;
  if (secret === null || (secret === undefined && keys === undefined)) {
    faults.add('secret', missing(secret));
  }
  if (Array.isArray(secret)) {
    secret.forEach((one: unknown, index) => {
      if (one === undefined || one === null) faults.add(`secret[${index}]`, missing(one));
    });
  }
  return fit;
}
