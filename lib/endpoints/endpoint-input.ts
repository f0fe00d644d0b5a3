import { isWebhookError, type WebhookDestinationBlockedError } from '../errors/webhook.error.js';
import { Problems } from '../options/problems.js';
import { invalidOptions } from '../options/read-options.js';
import {
  forbidden,
  isOptions,
  notUndefined,
  object,
  oneOf,
  optional,
  orNull,
  required,
  rule,
  type Rule,
  unless,
} from '../options/rules.js';
import { applySettings, checkProfile, ENDPOINT_SETTINGS } from '../sending/endpoint.js';
import { identifier, isIdentifier } from '../token/identifier.js';
import { parseSigningKey } from '../token/keys/signing-key.js';
import { checkSubscriptions, PATTERNS, type ResolvedEndpointOptions } from './endpoint-options.js';
import {
  ENDPOINT_ID_RULE,
  isEndpointId,
  type StoredEndpoint,
  type StoredEndpointSettings,
} from './endpoint-store.js';
import { frozenCopy } from './memory-endpoint.store.js';
import type { EndpointChanges, NewEndpoint } from './webhook-endpoint.interface.js';

const MAX_URL_LENGTH = 2_048;
const MAX_PATTERNS = 1_000;
const MAX_TEXT_LENGTH = 1_024;
const MAX_NOTES = 50;

const TEXT_RULE = `a string of at most ${MAX_TEXT_LENGTH} characters without NUL and lone surrogates`;

const isText = (value: unknown): value is string =>
  typeof value === 'string' && value.length <= MAX_TEXT_LENGTH && !/[\0\p{Cs}]/u.test(value);

const isMetadata = (value: unknown): boolean => {
  const notes = isOptions(value) ? Object.entries(value) : undefined;
  return (
    notes !== undefined &&
    notes.length <= MAX_NOTES &&
    notes.every(([name, note]) => isIdentifier(name) && isText(note))
  );
};

const URL_RULE = rule<string>(
  (value) => typeof value === 'string' && value.length <= MAX_URL_LENGTH,
  `must be a string of at most ${MAX_URL_LENGTH} characters`,
);

const EVENTS: Rule<readonly string[]> = (value, at, name) =>
  Array.isArray(value) && value.length > MAX_PATTERNS
    ? (at.add(name, `must be at most ${MAX_PATTERNS} names or patterns`) as never)
    : PATTERNS(value, at, name);

/** A secret is checked without quoting it. */
export const SECRET = unless<string>((secret) =>
  typeof secret === 'string' ? parseSigningKey(secret).problem : 'must be a string',
);

const TEXTS = {
  description: rule<string>(isText, `must be ${TEXT_RULE}`),
  metadata: rule<Readonly<Record<string, string>>>(
    isMetadata,
    `must be an object of at most ${MAX_NOTES} members: each ${TEXT_RULE}, under a name of at most 255`,
  ),
};

const NEW_ENDPOINT = object<NewEndpoint>()(
  {
    ...ENDPOINT_SETTINGS,
    id: optional(rule<string>(isEndpointId, ENDPOINT_ID_RULE)),
    url: required(URL_RULE, 'is missing'),
    events: optional(EVENTS, ['**']),
    tenant: notUndefined(identifier('tenant'), 'leave it out for an endpoint without a tenant'),
    description: optional(TEXTS.description),
    metadata: optional(TEXTS.metadata),
    secret: optional(SECRET),
    signing: optional(oneOf('secret', 'publisher')),
  },
  {
    form: 'an object',
    across({ secret, signing }, at) {
      at.require(
        secret === undefined || signing !== 'publisher',
        'secret',
        "cannot be combined with signing: 'publisher', which signs with the publisher's key: remove one of them",
      );
    },
  },
);

const { audience, subject, headers, method, timeout, hash, profile, jti } = ENDPOINT_SETTINGS;

/** Members that an update cannot change, with what to do instead. */
type Fixed = 'id' | 'tenant' | 'secret' | 'signing' | 'disabled';

const ENDPOINT_CHANGES = object<EndpointChanges & Partial<Record<Fixed, unknown>>>()(
  {
    url: optional(URL_RULE),
    events: optional(EVENTS),
    description: orNull(optional(TEXTS.description)),
    metadata: orNull(optional(TEXTS.metadata)),
    audience: orNull(audience),
    subject: orNull(subject),
    headers: orNull(headers),
    method: orNull(method),
    timeout: orNull(timeout),
    hash: orNull(hash),
    profile: orNull(profile),
    jti: orNull(jti),
    id: forbidden('cannot be changed: create another endpoint'),
    tenant: forbidden('cannot be changed: create an endpoint for the other tenant'),
    secret: forbidden(
      'cannot be changed here: call rotateKey, which gives the receiver time to add the new key',
    ),
    signing: forbidden('cannot be changed: create another endpoint'),
    disabled: forbidden('cannot be changed here: call disable or enable'),
  },
  { form: 'an object' },
);

/** Checked input, except for its URL's address; members that a change leaves out are absent. */
interface EndpointDraft {
  readonly id?: string | undefined;
  readonly url?: string | undefined;
  readonly events?: readonly string[] | undefined;
  readonly tenant?: string | undefined;
  readonly description?: string | undefined;
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  readonly secret?: string | undefined;
  readonly signing?: 'secret' | 'publisher' | undefined;
  readonly settings: StoredEndpointSettings;
  /** Names of the members that a change removes. */
  readonly removed: readonly string[];
}

/** Checks input that may come from a tenant's browser. Every problem is listed, with its remedy. */
export class EndpointInput {
  constructor(
    private readonly options: Pick<ResolvedEndpointOptions, 'defaults' | 'egress' | 'events'>,
  ) {}

  /**
   * @throws {@link WebhookDeliveryError} `invalid_option`
   * @throws {@link WebhookDestinationBlockedError} if the URL is the only problem
   */
  readNew(input: NewEndpoint): EndpointDraft {
    return this.read(NEW_ENDPOINT, input);
  }

  /**
   * @throws {@link WebhookDeliveryError} `invalid_option`
   * @throws {@link WebhookDestinationBlockedError} if the URL is the only problem
   */
  readChanges(input: EndpointChanges): EndpointDraft {
    return this.read(ENDPOINT_CHANGES, input);
  }

  /**
   * Checks the combination of all settings.
   *
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  requireUsable(settings: StoredEndpointSettings): void {
    const problems = new Problems();
    this.checkUse(settings, problems);
    throwIfWrong(problems);
  }

  private read(members: Rule<object>, input: unknown): EndpointDraft {
    const problems = new Problems();
    const read: object | undefined = members(input, problems, '');
    const given = Object.entries(read ?? {}).filter(([, value]) => value !== undefined);
    const kept = given.filter(([, value]) => value !== null);
    const isSetting = ([name]: [string, unknown]): boolean =>
      Object.hasOwn(ENDPOINT_SETTINGS, name);
    const settings = Object.fromEntries(kept.filter(isSetting)) as StoredEndpointSettings;
    const others = Object.fromEntries(
      kept.filter((entry) => !isSetting(entry)),
    ) as Partial<EndpointDraft>;
    this.checkUse(settings, problems);
    checkSubscriptions(others.events, this.options.events, problems);
    throwIfWrong(problems, others.url === undefined ? undefined : this.refusalOf(others.url));
    const removed = given.filter(([, value]) => value === null).map(([name]) => name);
    // Copied: the caller may change the input while the URL is resolved.
    return frozenCopy({ ...others, settings, removed });
  }

  private checkUse(own: StoredEndpointSettings, at: Problems): void {
    // Inherited settings were checked with the publisher's.
    if (own.profile === undefined && own.method === undefined) return;
    checkProfile(applySettings(this.options.defaults, own), at);
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

/** @throws {@link WebhookDeliveryError} `invalid_option` with every problem; `blocked` if it is the only one */
function throwIfWrong(problems: Problems, blocked?: WebhookDestinationBlockedError): void {
  if (problems.all.length === 0 && blocked !== undefined) throw blocked;
  if (blocked !== undefined) problems.add('url', blocked.message);
  if (problems.all.length > 0) throw invalidOptions(problems.all, 'The endpoint is');
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
    description: description ?? rest.description,
    metadata: metadata ?? rest.metadata,
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
