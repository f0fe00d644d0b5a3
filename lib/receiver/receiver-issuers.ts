import type { WebhookClock } from '../clock/webhook-clock.js';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import { IssuerList, type WebhookIssuer } from '../keys/issuer-list.js';
import { type KeyProvider, ProvidedKeys } from '../keys/key-provider.js';
import type { KeySetStatus, RemoteKeySets } from '../keys/remote-key-sets.js';
import { type KeyLog, reasonOf, OutageLog } from '../keys/key-log.js';
import { Problems } from '../options/problems.js';
import type { IssuerRules } from '../request/webhook-scheme.js';
import { list, object, optional, type Read, required, rule, unchecked } from '../options/rules.js';
import type { KeyRingOptions } from '../token/keys/trusted-issuers.js';
import type { KeySource } from '../token/keys/token-keys.js';

const isNonEmptyString = (value: unknown): boolean => typeof value === 'string' && value !== '';

/** A type, or all types of a family. */
const isMediaType = (value: unknown): boolean =>
  typeof value === 'string' && /^[\w.+-]+\/(?:[\w.+-]+|\*)$/.test(value);

/** An issuer from the options or a provider; the {@link IssuerList} checks its keys. */
export const ISSUER = object<WebhookIssuer>()(
  {
    issuer: required(unchecked<string>()),
    secret: unchecked<WebhookIssuer['secret']>(),
    keys: optional(
      rule<NonNullable<WebhookIssuer['keys']>>(
        Array.isArray,
        'must be a list: [{ kid, alg, key }], with one key too',
      ),
    ),
    jwksUri: unchecked<string | undefined>(),
    events: optional(
      rule<readonly string[]>(
        (value) => Array.isArray(value) && value.every(isNonEmptyString),
        "must be a list of event patterns: ['order.*']",
      ),
    ),
    contentTypes: optional(
      rule<readonly string[]>(
        (value) => Array.isArray(value) && value.length > 0 && value.every(isMediaType),
        "must be a list of media types without parameters: ['application/json'] or ['text/*']",
      ),
    ),
  },
  {
    form: 'an object: { issuer, secret }',
    across({ issuer, secret, keys, jwksUri }, at) {
      const owner = isNonEmptyString(issuer) ? `"${issuer}"` : 'this issuer';
      const requireSecret = (one: unknown, name: string): void =>
        at.require(
          one !== undefined && one !== null,
          name,
          `the secret of ${owner} is ${String(one)}: is the environment variable set?`,
        );
      const isAlone = keys === undefined && jwksUri === undefined && !at.has('secret', 'keys');
      if (secret === null || isAlone) requireSecret(secret, 'secret');
      if (Array.isArray(secret)) {
        secret.forEach((one: unknown, index) => requireSecret(one, `secret[${index}]`));
      }
    },
  },
);

/** Stands for an entry that is no object, so that the others keep their indexes. */
const NO_ISSUER: WebhookIssuer = { issuer: '' };

/** The issuers that a receiver trusts, now and after every change. */
export interface ReceiverIssuers extends IssuerRules {
  readonly keys: KeySource;
  /**
   * Loads the keys before the first request.
   *
   * @throws {@link WebhookConfigurationError} with every problem; paths are relative to the receiver
   */
  start(): Promise<void>;
  checkKeySets(): readonly KeySetStatus[];
}

interface ReceiverIssuersContext {
  readonly keyOptions: KeyRingOptions;
  readonly remote: RemoteKeySets;
  readonly clock: WebhookClock;
  readonly log: KeyLog;
  /** The receiver's name for the log. */
  readonly name: string;
}

/** Issuers that are listed in the options; `undefined` for a malformed one. */
export function listedIssuers(
  issuers: readonly (Read<typeof ISSUER> | undefined)[],
  { keyOptions, remote, clock, log }: ReceiverIssuersContext,
  at: Problems,
): ReceiverIssuers {
  const trusted = issuers.map((issuer) => issuer ?? NO_ISSUER);
  const { list, problems } = IssuerList.read(trusted, keyOptions, remote);
  at.addOthers(problems);
  return {
    keys: list.ring,
    eventsOf: (issuer) => list.eventsOf(issuer),
    contentTypesOf: (issuer) => list.contentTypesOf(issuer),
    start: async () => {
      for (const notice of list.notices(clock.now() / 1_000)) log('warn', notice);
    },
    checkKeySets: () => remote.check(),
  };
}

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
    parse: (given) => {
      // Unlike a list in the options, it may be empty: the last issuer was revoked, or none has been added yet.
      const list = readIssuers(given, { ...keyOptions, allowEmpty: true }, remote);
      const notices =
        given.length === 0
          ? [`The KeyProvider of ${name} returned an empty list, so every token is refused`]
          : list.notices(clock.now() / 1_000);
      for (const notice of notices) if (!logged.has(notice)) log('warn', notice);
      logged.clear();
      for (const notice of notices) logged.add(notice);
      return list;
    },
  });
  return {
    keys: {
      async ring() {
        const { ring } = await provided.current();
        return ring;
      },
      latest: () => provided.latest?.ring,
    },
    // The current list, also for a token that was just verified with the previous one.
    eventsOf: (issuer) => (provided.latest === undefined ? [] : provided.latest.eventsOf(issuer)),
    contentTypesOf: (issuer) =>
      provided.latest === undefined ? [] : provided.latest.contentTypesOf(issuer),
    checkKeySets: () => remote.check(),
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
  const problems = new Problems();
  const issuers = ISSUERS(given, problems, 'issuers');
  // A malformed entry would cause further, misleading problems.
  problems.throwIfAny();
  const { list: read, problems: others } = IssuerList.read(issuers, options, remote);
  problems.addOthers(others);
  problems.throwIfAny();
  return read;
}

const ISSUERS = list(ISSUER, 'load() of the KeyProvider must return a list: [{ issuer, secret }]');
