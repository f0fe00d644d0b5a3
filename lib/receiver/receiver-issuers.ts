import type { WebhookClock } from '../clock/webhook-clock.js';
import { type ConfigurationProblem, WebhookConfigurationError } from '../errors/webhook.error.js';
import { IssuerList } from '../keys/issuer-list.js';
import type { KeyProvider } from '../keys/key-provider.js';
import { ProvidedKeys } from '../keys/provided-keys.js';
import type { KeySetStatus } from '../keys/remote-key-set.js';
import type { RemoteKeySets } from '../keys/remote-key-sets.js';
import { type KeyLog, reasonOf, OutageLog } from '../keys/key-log.js';
import type { WebhookIssuer } from '../keys/webhook-issuer.js';
import { ConfigurationFaults } from '../options/configuration-faults.js';
import {
  checkShape,
  isOptions,
  misspeltOptions,
  type OptionShape,
} from '../options/option-shape.js';
import type { KeyRingOptions } from '../token/keys/key-ring.js';
import type { KeySource } from '../token/keys/key-source.js';
import { after } from '../token/maybe-promise.js';

const isNonEmptyString = (value: unknown): boolean => typeof value === 'string' && value !== '';

/** A type, or all types of a family. */
const isMediaType = (value: unknown): boolean =>
  typeof value === 'string' && /^[\w.+-]+\/(?:[\w.+-]+|\*)$/.test(value);

const ISSUER: OptionShape<WebhookIssuer> = {
  issuer: undefined,
  secret: undefined,
  keys: { holds: Array.isArray, message: 'must be a list: [{ kid, alg, key }], with one key too' },
  jwksUri: undefined,
  events: {
    holds: (value) => Array.isArray(value) && value.every(isNonEmptyString),
    message: "must be a list of event patterns: ['order.*']",
  },
  contentTypes: {
    holds: (value) => Array.isArray(value) && value.length > 0 && value.every(isMediaType),
    message: "must be a list of media types without parameters: ['application/json'] or ['text/*']",
  },
};

/** Replaces an invalid entry, so that the others keep their indexes. */
const NO_ISSUER: WebhookIssuer = { issuer: '' };

/** Checks the shape of issuers from the options or a provider. */
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
    `the secret of ${isNonEmptyString(fit.issuer) ? `"${fit.issuer}"` : 'this issuer'} is ${String(value)}: is the environment variable set?`;
  const isMisspelt = misspeltOptions(issuer, ISSUER).includes('secret');
  const alone = keys === undefined && jwksUri === undefined && !isMisspelt;
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

/** The issuers that a receiver trusts, now and after every change. */
export interface ReceiverIssuers {
  readonly keys: KeySource;
  /** The events that an issuer may send. */
  readonly allowedEvents: ValuesByIssuer;
  /** The media types that bodies of an issuer may have. */
  readonly allowedContentTypes: ValuesByIssuer;
  /**
   * Loads the keys before the first request.
   *
   * @throws {@link WebhookConfigurationError} with every fault; paths are relative to the receiver
   */
  start(): Promise<void>;
  /** The key sets that are fetched. */
  keySets(): readonly KeySetStatus[];
}

/** What an issuer may send. */
export interface ValuesByIssuer {
  /** @returns `undefined` for an issuer without a limit */
  get(issuer: string): readonly string[] | undefined;
}

interface ReceiverIssuersContext {
  readonly keyOptions: KeyRingOptions;
  readonly remote: RemoteKeySets;
  readonly clock: WebhookClock;
  readonly log: KeyLog;
  /** The receiver's name for the log. */
  readonly name: string;
}

/** Issuers that are listed in the options. */
export function listedIssuers(
  issuers: readonly WebhookIssuer[],
  { keyOptions, remote, clock, log }: ReceiverIssuersContext,
): { issuers: ReceiverIssuers; faults: readonly ConfigurationProblem[] } {
  const { list, faults } = IssuerList.read(issuers, keyOptions, remote);
  return {
    issuers: {
      keys: list.ring,
      allowedEvents: { get: (issuer) => list.eventsOf(issuer) },
      allowedContentTypes: { get: (issuer) => list.contentTypesOf(issuer) },
      start: async () => {
        for (const notice of list.notices(clock.now() / 1_000)) log('warn', notice);
      },
      keySets: () => remote.status(),
    },
    faults,
  };
}

/** Issuers from a provider, which may change. */
export function providedIssuers(
  provider: KeyProvider<readonly WebhookIssuer[]>,
  durations: { readonly ttl: number; readonly maxStale: number },
  { keyOptions, remote, clock, log, name }: ReceiverIssuersContext,
): ReceiverIssuers {
  const logged = new Set<string>();
  const provided = new ProvidedKeys({
    provider,
    ...durations,
    clock,
    outage: new OutageLog(`The issuers of ${name}`, log),
    parse: (given: unknown) => {
      const list = readIssuers(given, keyOptions, remote);
      const notices = list.notices(clock.now() / 1_000);
      for (const notice of notices) if (!logged.has(notice)) log('warn', notice);
      logged.clear();
      for (const notice of notices) logged.add(notice);
      return list;
    },
  });
  return {
    keys: {
      ring() {
        return after(provided.current(), ({ ring }) => ring);
      },
      latest: () => provided.latest?.ring,
    },
    // The current list, also for a token that was just verified with the previous one.
    allowedEvents: {
      get: (issuer) => (provided.latest === undefined ? [] : provided.latest.eventsOf(issuer)),
    },
    allowedContentTypes: {
      get: (issuer) =>
        provided.latest === undefined ? [] : provided.latest.contentTypesOf(issuer),
    },
    keySets: () => remote.status(),
    async start() {
      try {
        await provided.start();
      } catch (error) {
        if (error instanceof WebhookConfigurationError) throw error;
        throw new WebhookConfigurationError(
          [
            {
              path: 'issuers',
              message: `the KeyProvider could not load them (${reasonOf(error)}); start the application when its source is reachable`,
            },
          ],
          { cause: error },
        );
      }
    },
  };
}

function readIssuers(given: unknown, options: KeyRingOptions, remote: RemoteKeySets): IssuerList {
  const faults = new ConfigurationFaults('');
  if (!Array.isArray(given)) {
    faults.add('issuers', 'load() of the KeyProvider must return a list: [{ issuer, secret }]');
    throw new WebhookConfigurationError(faults.all);
  }
  const issuers = checkIssuers(given as readonly unknown[], faults);
  // A malformed entry would cause further, misleading faults.
  if (faults.all.length > 0) throw new WebhookConfigurationError(faults.all);
  const { list, faults: wrong } = IssuerList.read(issuers, options, remote);
  if (wrong.length > 0) throw new WebhookConfigurationError(wrong);
  return list;
}
