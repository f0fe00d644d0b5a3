import {
  isWebhookError,
  WebhookDeliveryError,
  WebhookDestinationBlockedError,
} from '../errors/webhook.error.js';
import { ConfigurationFaults } from '../options/configuration-faults.js';
import {
  checkShape,
  isOptions,
  type OptionRule,
  type OptionShape,
} from '../options/option-shape.js';
import { resolvePatterns, type ResolvedEndpointOptions } from './endpoint-options.js';
import { unprintedHeaders } from '../options/unprinted.js';
import {
  applySettings,
  checkProfile,
  type EndpointSettings,
  type ResolvedEndpointSettings,
} from '../sending/endpoint.js';
import { identifierRule, isIdentifier } from '../token/identifier.js';
import { parseSigningKey } from '../token/keys/signing-key.js';
import {
  ENDPOINT_ID_RULE,
  isEndpointId,
  type StoredEndpoint,
  type StoredEndpointSettings,
} from './endpoint-store.js';
import { frozenCopy } from './memory-endpoint.store.js';
import type { EndpointChanges, NewEndpoint } from './webhook-endpoint.interface.js';

/** Checked input, except for its URL's address; members that a change leaves out are absent. */
interface EndpointDraft extends Omit<NewEndpoint, keyof EndpointSettings | 'url' | 'tenant'> {
  readonly url: string | undefined;
  readonly tenant?: string | undefined;
  readonly settings: StoredEndpointSettings;
  /** Names of the members that a change removes. */
  readonly removed: readonly string[];
}

/** Checks input that may come from a tenant's browser. Every fault is listed, with its remedy. */
export class EndpointInput {
  constructor(
    private readonly options: Pick<ResolvedEndpointOptions, 'defaults' | 'egress' | 'events'>,
  ) {}

  /**
   * @throws {@link WebhookDeliveryError} `invalid_option`
   * @throws {@link WebhookDestinationBlockedError} if the URL is the only fault
   */
  readNew(input: NewEndpoint): EndpointDraft {
    const faults = new ConfigurationFaults('');
    if (!isOptions(input))
      throw invalidEndpoint([{ path: 'endpoint', message: 'must be an object' }]);
    const fit = checkShape<NewEndpoint>(input, NEW_ENDPOINT, faults);
    const { secret, signing } = fit;
    faults.require((input as { url?: unknown }).url !== undefined, 'url', 'is missing');
    if (secret !== undefined) checkSecret(secret, faults);
    faults.require(
      !('tenant' in input) || input.tenant !== undefined,
      'tenant',
      'is undefined, which is most often a mistake; leave it out for an endpoint without a tenant',
    );
    faults.require(
      secret === undefined || signing !== 'publisher',
      'secret',
      "cannot be combined with signing: 'publisher', which signs with the publisher's key: remove one of them",
    );
    const { settings, blocked } = this.readShared(fit, faults);
    const events = resolvePatterns(fit.events, this.options.events, faults);
    throwIfWrong(faults, blocked);
    const { id, url, tenant, description, metadata } = fit;
    // Copied: the caller may change the input while the URL is resolved.
    const draft = { id, url, events, tenant, description, metadata, secret, signing, settings };
    return frozenCopy({ ...draft, removed: [] });
  }

  /**
   * @throws {@link WebhookDeliveryError} `invalid_option`
   * @throws {@link WebhookDestinationBlockedError} if the URL is the only fault
   */
  readChanges(input: EndpointChanges): EndpointDraft {
    const faults = new ConfigurationFaults('');
    if (!isOptions(input))
      throw invalidEndpoint([{ path: 'changes', message: 'must be an object' }]);
    const given = Object.entries(input).filter(([, value]) => value !== undefined);
    for (const [name] of given) {
      const remedy = Object.hasOwn(FIXED, name) ? FIXED[name] : undefined;
      if (remedy !== undefined) faults.add(name, remedy);
    }
    const isRemoval = ([name, value]: [string, unknown]): boolean =>
      value === null && REMOVABLE.has(name);
    const rest = given.filter((entry) => !Object.hasOwn(FIXED, entry[0]) && !isRemoval(entry));
    const fit = checkShape<NewEndpoint>(
      Object.fromEntries(rest),
      ENDPOINT_CHANGES as typeof NEW_ENDPOINT,
      faults,
    );
    const { settings, blocked } = this.readShared(fit, faults);
    const events =
      fit.events === undefined
        ? undefined
        : resolvePatterns(fit.events, this.options.events, faults);
    throwIfWrong(faults, blocked);
    const { url, description, metadata } = fit;
    const removed = given.filter(isRemoval).map(([name]) => name);
    return frozenCopy({ url, events, description, metadata, settings, removed });
  }

  /**
   * Checks the combination of all settings.
   *
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  requireUsable(settings: StoredEndpointSettings): void {
    const faults = new ConfigurationFaults('');
    this.settle(settings, faults);
    throwIfWrong(faults);
  }

  private readShared(
    fit: Partial<NewEndpoint>,
    faults: ConfigurationFaults,
  ): { settings: StoredEndpointSettings; blocked: WebhookDestinationBlockedError | undefined } {
    const own = Object.fromEntries(
      Object.entries(fit).filter(([name]) => Object.hasOwn(SETTINGS, name)),
    ) as EndpointSettings;
    const { timeout } = this.settle(own, faults);
    return {
      settings: {
        ...own,
        ...(own.timeout !== undefined && { timeout }),
        ...(own.headers !== undefined && { headers: unprintedHeaders(own.headers) }),
      } as StoredEndpointSettings,
      blocked: fit.url === undefined ? undefined : this.refusalOf(fit.url),
    };
  }

  private settle(own: EndpointSettings, faults: ConfigurationFaults): ResolvedEndpointSettings {
    const settled = applySettings(this.options.defaults, own, faults);
    // Inherited settings were checked with the publisher's.
    if (own.profile !== undefined || own.method !== undefined) checkProfile(settled, faults);
    return settled;
  }

  private refusalOf(url: string): WebhookDestinationBlockedError | undefined {
    try {
      this.options.egress.checkUrl(url);
      return undefined;
    } catch (error) {
      if (!isWebhookError(error, 'destination_blocked')) throw error;
      return error as WebhookDestinationBlockedError;
    }
  }
}

/** Adds what is wrong with a secret, without quoting it. */
export function checkSecret(secret: unknown, faults: ConfigurationFaults): void {
  const fault = typeof secret === 'string' ? parseSigningKey(secret).fault : 'must be a string';
  if (fault !== undefined) faults.add('secret', fault);
}

/** @throws {@link WebhookDeliveryError} `invalid_option` with every fault; `blocked` if it is the only one */
export function throwIfWrong(
  faults: ConfigurationFaults,
  blocked?: WebhookDestinationBlockedError,
): void {
  if (faults.all.length === 0 && blocked !== undefined) throw blocked;
  if (blocked !== undefined) faults.add('url', blocked.message);
  if (faults.all.length > 0) throw invalidEndpoint(faults.all);
}

function invalidEndpoint(faults: ConfigurationFaults['all']): WebhookDeliveryError {
  const lines = faults.map(({ path, message }) => `  - ${path}: ${message}`);
  return new WebhookDeliveryError(
    'invalid_option',
    `The endpoint is invalid:\n${lines.join('\n')}`,
    { problems: faults },
  );
}

/** Applies a change to an endpoint. */
export function patched(
  current: StoredEndpoint,
  { url = current.url, events = current.events, settings, removed, ...draft }: EndpointDraft,
): StoredEndpoint {
  const { description, metadata } = draft;
  const rest = without(current, removed);
  return {
    ...rest,
    url,
    events,
    settings: { ...without(current.settings, removed), ...settings },
    ...(description !== undefined && { description }),
    ...(metadata !== undefined && { metadata }),
  };
}

/** Whether a change touches no member that a concurrent change has touched. */
export function commutes(
  draft: EndpointDraft,
  before: StoredEndpoint,
  now: StoredEndpoint,
): boolean {
  const touched = new Set<string>([
    ...Object.keys(draft.settings),
    ...draft.removed,
    ...(['url', 'events', 'description', 'metadata'] as const).filter(
      (name) => draft[name] !== undefined,
    ),
  ]);
  const isSame = (name: string): boolean =>
    JSON.stringify(valueOf(before, name)) === JSON.stringify(valueOf(now, name));
  return [...touched].every(isSame);
}

function valueOf(endpoint: StoredEndpoint, name: string): unknown {
  return { ...endpoint.settings, ...endpoint }[name as keyof StoredEndpoint];
}

function without<T extends object>(value: T, names: readonly string[]): T {
  return Object.fromEntries(Object.entries(value).filter(([name]) => !names.includes(name))) as T;
}

const MAX_URL_LENGTH = 2_048;
const MAX_PATTERNS = 1_000;
const MAX_TEXT_LENGTH = 1_024;
const MAX_NOTES = 50;

const TEXT_RULE = `a string of at most ${MAX_TEXT_LENGTH} characters without NUL and lone surrogates`;

/** Settings of an endpoint; `applySettings` checks most of their values. */
const SETTINGS: OptionShape<EndpointSettings> = {
  method: undefined,
  profile: undefined,
  hash: undefined,
  jti: undefined,
  timeout: undefined,
  headers: { holds: isOptions, message: 'must be an object: { name: value }' },
  audience: undefined,
  subject: undefined,
};

const URL_RULE: OptionRule = {
  holds: (value) => typeof value === 'string' && value.length <= MAX_URL_LENGTH,
  message: `must be a string of at most ${MAX_URL_LENGTH} characters`,
};

const EVENTS_RULE: OptionRule = {
  holds: (value) => !Array.isArray(value) || value.length <= MAX_PATTERNS,
  message: `must be at most ${MAX_PATTERNS} names or patterns`,
};

const TEXTS: OptionShape<Pick<NewEndpoint, 'description' | 'metadata'>> = {
  description: { holds: isText, message: `must be ${TEXT_RULE}` },
  metadata: {
    holds: isMetadata,
    message: `must be an object of at most ${MAX_NOTES} members: each ${TEXT_RULE}, under a name of at most 255`,
  },
};

/** The members of a new endpoint. */
const NEW_ENDPOINT: OptionShape<NewEndpoint> = {
  id: { holds: isEndpointId, message: ENDPOINT_ID_RULE },
  url: URL_RULE,
  events: EVENTS_RULE,
  tenant: { holds: isIdentifier, message: identifierRule('tenant') },
  ...TEXTS,
  secret: { holds: (value) => typeof value === 'string', message: 'must be a string' },
  signing: {
    holds: (value) => value === 'secret' || value === 'publisher',
    message: "must be 'secret' or 'publisher'",
  },
  ...SETTINGS,
};

/** The members of a change. */
const ENDPOINT_CHANGES: OptionShape<EndpointChanges> = {
  url: URL_RULE,
  events: EVENTS_RULE,
  ...TEXTS,
  ...SETTINGS,
};

/** Members that an update cannot change, and what to do instead. */
const FIXED: Readonly<Record<string, string>> = {
  id: 'cannot be changed: create another endpoint',
  tenant: 'cannot be changed: create an endpoint for the other tenant',
  secret:
    'cannot be changed here: call rotateKey, which gives the receiver time to add the new key',
  signing: 'cannot be changed: create another endpoint',
  disabled: 'cannot be changed here: call disable or enable',
};

/** Members that an update may remove with `null`. */
const REMOVABLE: ReadonlySet<string> = new Set([...Object.keys(TEXTS), ...Object.keys(SETTINGS)]);

function isText(value: unknown): value is string {
  return typeof value === 'string' && value.length <= MAX_TEXT_LENGTH && !/[\0\p{Cs}]/u.test(value);
}

function isMetadata(value: unknown): boolean {
  if (!isOptions(value)) return false;
  const notes = Object.entries(value);
  return (
    notes.length <= MAX_NOTES && notes.every(([name, note]) => isIdentifier(name) && isText(note))
  );
}
