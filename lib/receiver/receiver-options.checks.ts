import { ConfigurationFaults } from '../options/configuration-faults.js';
import type { ConfigurationProblem } from '../errors/webhook.error.js';
import type { JwksFetchOptions } from '../keys/jwks-options.js';
import {
  checkShape,
  hasMethods,
  isOptions,
  misspeltOptions,
  type OptionShape,
} from '../options/option-shape.js';
import type { WebhookSpoolOptions } from '../request/body-spool.js';
import type { RetryScheduleOptions } from '../queue/retry-schedule.js';
import { checkIssuers } from './receiver-issuers.js';
import type { WebhookReceiverOptions, WebhookReplayOptions } from './receiver-options.interface.js';

const isNonEmptyString = (value: unknown): boolean => typeof value === 'string' && value !== '';
const isStringList = (value: unknown): boolean =>
  Array.isArray(value) && value.every(isNonEmptyString);
const isBoolean = (value: unknown): boolean => typeof value === 'boolean';
/** By its methods, so that a provider that extends another copy of the class is accepted. */
const isProvider = (value: unknown): boolean => hasMethods(value, ['load', 'refresh', 'subscribe']);
const isOneOf =
  (...words: string[]) =>
  (value: unknown): boolean =>
    typeof value === 'string' && words.includes(value);

const RECEIVER: OptionShape<WebhookReceiverOptions> = {
  name: { holds: isNonEmptyString, message: 'must be a non-empty string' },
  path: {
    holds: (value) => typeof value === 'string',
    message: 'must be a string such as "webhooks"',
  },
  issuers: {
    holds: (value) => Array.isArray(value) || isProvider(value),
    message:
      'must be a list, also with one issuer: [{ issuer, secret }]; or an instance of a class that extends KeyProvider',
  },
  jwksFetch: {
    holds: isOptions,
    message: 'must be an object: { timeout, cooldown, maxAge, maxStale, ca }',
  },
  profiles: {
    holds: Array.isArray,
    message: "must be a list: ['webhook-token', 'swt-draft-00', 'swt-draft-02']",
  },
  audience: {
    holds: (value) => isNonEmptyString(value) || (isStringList(value) && (value as []).length > 0),
    message: 'must be a non-empty string or a list of them; omit it to have no audience',
  },
  clockTolerance: undefined,
  maxTokenLifetime: undefined,
  requireHash: {
    // A string from the environment, such as 'false', must not be taken as true.
    holds: isBoolean,
    message: 'must be a boolean, not a string or a number',
  },
  maxBodyBytes: undefined,
  maxJsonMembers: {
    holds: (value) => Number.isSafeInteger(value) && (value as number) > 0,
    message: 'must be a positive whole number',
  },
  spool: {
    holds: (value) => value === false || isOptions(value),
    message: 'must be an object: { above, directory, maxBytes }, or false for memory',
  },
  replay: { holds: isOptions, message: 'must be an object: { store, onDuplicate, window, lease }' },
  acknowledge: {
    holds: isOneOf('handled', 'queued'),
    message: "must be 'handled' or 'queued'",
  },
  queue: {
    holds: (value) => hasMethods(value, ['enqueue', 'consume', 'listDead', 'redeliver', 'stop']),
    message: 'must be a WebhookQueue, such as PgBossQueue',
  },
  retry: { holds: isOptions, message: 'must be an object: { attempts, schedule, jitter }' },
  unhandledEvent: {
    holds: isOneOf('acknowledge', 'reject'),
    message: "must be 'acknowledge' or 'reject'",
  },
  validation: {
    holds: (value) => value === false || isOptions(value),
    message: 'must be the options of a ValidationPipe, or false for no validation',
  },
  allowWeakSecrets: { holds: isBoolean, message: 'must be a boolean, not a string or a number' },
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

const isByteCount = {
  holds: (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0,
  message: 'must be a whole number of bytes',
};

const SPOOL: OptionShape<WebhookSpoolOptions> = {
  above: isByteCount,
  directory: { holds: isNonEmptyString, message: 'must be the path of a directory' },
  maxBytes: isByteCount,
};

/** The values are checked by `resolveRetrySchedule`. */
const RETRY: OptionShape<RetryScheduleOptions> = {
  attempts: undefined,
  schedule: undefined,
  jitter: undefined,
};

const JWKS_FETCH: OptionShape<JwksFetchOptions> = {
  allowHttp: undefined,
  allowPrivateNetworks: undefined,
  allowedAddresses: undefined,
  allowedPorts: undefined,
  timeout: undefined,
  cooldown: undefined,
  maxAge: undefined,
  maxStale: undefined,
  ca: undefined,
};

/**
 * Checks the shape of a receiver's options.
 *
 * @returns the well-formed options, and the faults of the others with paths relative to the receiver
 */
export function checkReceiverOptions(options: unknown): {
  options: WebhookReceiverOptions;
  faults: readonly ConfigurationProblem[];
  /** Paths of options that are faulty or misspelt: what else is found there has the same cause. */
  reported: readonly string[];
} {
  const faults = new ConfigurationFaults('');
  if (!isOptions(options)) {
    faults.add('', 'must be an object: { path, issuers }, or a list of such objects');
    return { options: { issuers: [] }, faults: faults.all, reported: [''] };
  }
  const fit = checkShape(options, RECEIVER, faults);
  const { issuers: given = [] } = fit;
  const issuers = isList(given) ? checkIssuers(given, faults) : given;
  const replay = checkShape(fit.replay ?? {}, REPLAY, faults.below('replay'));
  const jwksFetch = checkShape(fit.jwksFetch ?? {}, JWKS_FETCH, faults.below('jwksFetch'));
  const spool =
    fit.spool === false ? false : checkShape(fit.spool ?? {}, SPOOL, faults.below('spool'));
  if (fit.retry !== undefined) checkShape(fit.retry, RETRY, faults.below('retry'));
  return {
    options: { ...fit, issuers, replay, jwksFetch, spool },
    faults: faults.all,
    reported: [...faults.all.map(({ path }) => path), ...misspeltOptions(options, RECEIVER)],
  };
}

/** `Array.isArray` for readonly lists. */
export function isList<Item>(value: readonly Item[] | object): value is readonly Item[] {
  return Array.isArray(value);
}
