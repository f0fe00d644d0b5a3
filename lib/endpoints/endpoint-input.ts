import { DAY } from '../clock/duration.js';
import { isWebhookError, type WebhookDestinationBlockedError } from '../errors/webhook.error.js';
import { Problems } from '../options/problems.js';
import { invalidOptions, readArgument } from '../options/read-options.js';
import {
  duration,
  eachOrNull,
  forbidden,
  isOptions,
  notUndefined,
  object,
  oneOf,
  optional,
  required,
  rule,
  type Rule,
  text,
  whole,
} from '../options/rules.js';
import { applySettings } from '../sending/endpoint.js';
import {
  checkCredentials,
  CREDENTIALS,
  type EndpointCredentials,
} from '../sending/endpoint-credentials.js';
import { checkProfile, isStandardWebhooks, tokenProfile } from '../sending/sent-profile.js';
import { parseStandardWebhooksSigningKey } from '../keys/standard-webhooks-key.js';
import { identifierRule, isIdentifier, pathSegment } from '../token/identifier.js';
import { parseSigningKey } from '../token/keys/signing-key.js';
import {
  checkSubscriptions,
  checkTokenUrl,
  PATTERNS,
  type ResolvedEndpointOptions,
  STORED_SETTINGS,
} from './endpoint-options.js';
import {
  ENDPOINT_ID_RULE,
  isEndpointId,
  type StoredEndpoint,
  type StoredEndpointSettings,
} from './endpoint-store.js';
import { frozenCopy } from './memory-endpoint.store.js';
import type { SentProfile } from '../token/webhook-token.constants.js';
import type {
  EndpointChanges,
  EndpointListRequest,
  EndpointScope,
  EndpointTestOptions,
  KeyRotationOptions,
  NewEndpoint,
} from './webhook-endpoint.interface.js';

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

/** Which strings are secrets depends on the wire format of the endpoint. */
const SECRET = rule<string>((value) => typeof value === 'string', 'must be a string');

/** What is wrong with a secret for a wire format, without quoting it. */
function secretProblem(secret: string, profile: SentProfile): string | undefined {
  const standard = isStandardWebhooks(profile)
    ? parseStandardWebhooksSigningKey(secret).problem
    : undefined;
  if (standard !== undefined || tokenProfile(profile) === undefined) return standard;
  return /^wh[sp]k_/.test(secret)
    ? 'is an Ed25519 key, with which only Standard Webhooks are signed: use a secret "whsec_…", or the profile \'standard-webhooks\''
    : parseSigningKey(secret).problem;
}

const TEXTS = {
  description: optional(rule<string>(isText, `must be ${TEXT_RULE}`)),
  metadata: optional(
    rule<Readonly<Record<string, string>>>(
      isMetadata,
      `must be an object of at most ${MAX_NOTES} members: each ${TEXT_RULE}, under a name of at most 255`,
    ),
  ),
};

export const NEW_ENDPOINT = object<NewEndpoint>()(
  {
    ...STORED_SETTINGS,
    id: optional(rule<string>(isEndpointId, ENDPOINT_ID_RULE)),
    url: required(URL_RULE, 'is missing'),
    events: optional(EVENTS, ['**']),
    tenant: notUndefined(pathSegment('tenant'), 'leave it out for an endpoint without a tenant'),
    ...TEXTS,
    secret: optional(SECRET),
    credentials: optional(CREDENTIALS),
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

/** Members that an update cannot change, with what to do instead. */
type Fixed = 'id' | 'tenant' | 'secret' | 'signing' | 'disabled';

export const ENDPOINT_CHANGES = object<EndpointChanges & Partial<Record<Fixed, unknown>>>()(
  {
    url: optional(URL_RULE),
    events: optional(EVENTS),
    ...eachOrNull({ ...TEXTS, ...STORED_SETTINGS, credentials: optional(CREDENTIALS) }),
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

/** A tenant's name, or `null` for the endpoints without a tenant. */
const TENANT = notUndefined(
  rule<string | null>(
    (value) => value === null || isIdentifier(value),
    `${identifierRule('it')}, or null for the endpoints without a tenant`,
  ),
  'leave it out to see everything',
);

export const LIST_REQUEST = object<EndpointListRequest>()(
  {
    tenant: TENANT,
    after: optional(text('must be `next` of the previous page')),
    limit: optional(whole(1, 1_000), 100),
  },
  { exact: true },
);

const SCOPE = object<EndpointScope>()(
  { tenant: TENANT },
  {
    exact: true,
    across({ tenant }, at) {
      at.require(
        tenant !== undefined || at.has(''),
        '',
        'has no tenant; pass { tenant } with its name or null, or leave the scope out for the endpoints of all tenants',
      );
    },
  },
);

/**
 * Reads the tenant that a call is limited to.
 *
 * @throws {@link WebhookDeliveryError} `invalid_option`
 */
export function readScope(scope: unknown): EndpointScope | undefined {
  // The rule refuses a scope without a tenant.
  return scope === undefined ? undefined : (readArgument(SCOPE, scope, 'scope') as EndpointScope);
}

export const ROTATION = object<KeyRotationOptions>()({
  overlap: optional(duration({ min: 0, max: '3650d' }), DAY),
  secret: optional(SECRET),
});

export const TEST = object<EndpointTestOptions>()(
  { tenant: TENANT, event: optional(text('must be the name of an event')) },
  {
    exact: true,
    across({ tenant, event }, at) {
      const isEmpty = tenant === undefined && event === undefined;
      at.require(!isEmpty || at.has(''), '', 'has neither a tenant nor an event; leave it out');
    },
  },
);

/** Checked input, except for its URL's address; members that a change leaves out are absent. */
interface EndpointDraft extends Partial<Omit<NewEndpoint, keyof StoredEndpointSettings>> {
  readonly settings: StoredEndpointSettings;
  /** Names of the members that a change removes. */
  readonly removed: readonly string[];
}

/** Checks input that may come from a tenant's browser. Every problem is listed, with its remedy. */
export class EndpointInput {
  constructor(
    private readonly options: Pick<ResolvedEndpointOptions, 'defaults' | 'egress' | 'events'>,
  ) {}

  /** The wire format that an endpoint with these settings has. */
  profileOf({ profile }: StoredEndpointSettings): SentProfile {
    return profile ?? this.options.defaults.profile;
  }

  /**
   * Checks the combination of all settings, and the endpoint's secrets if the wire format changes.
   *
   * @param secretsOf - decrypts them; none if the publisher signs
   * @param credentialsOf - new credentials; for another wire format, otherwise the stored ones
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  requireUsable(
    settings: StoredEndpointSettings,
    before: StoredEndpointSettings,
    secretsOf: () => readonly string[],
    credentialsOf: (isOtherProfile: boolean) => EndpointCredentials | undefined,
  ): void {
    const problems = new Problems();
    const profile = this.profileOf(settings);
    const isOther = JSON.stringify(profile) !== JSON.stringify(this.profileOf(before));
    const secrets = isOther ? secretsOf() : [];
    this.checkUse(settings, problems, !isOther || secrets.length > 0);
    checkCredentials(credentialsOf(isOther), profile, problems);
    const [problem] = secrets.flatMap((secret) => secretProblem(secret, profile) ?? []);
    if (problem !== undefined && !problems.has('profile')) {
      problems.add(
        'profile',
        `cannot be used with the endpoint's secret, which ${problem.replace(/: make one .*$/s, '')}: rotate the key first`,
      );
    }
    throwIfWrong(problems);
  }

  /** @throws {@link WebhookDeliveryError} `invalid_option` */
  requireSecret(secret: string | undefined, settings: StoredEndpointSettings): void {
    const problems = new Problems();
    this.checkSecret(secret, settings, problems);
    throwIfWrong(problems);
  }

  /**
   * @param members - the rules of {@link NEW_ENDPOINT} or {@link ENDPOINT_CHANGES}
   * @throws {@link WebhookDeliveryError} `invalid_option`
   * @throws {@link WebhookDestinationBlockedError} if the URL is the only problem
   */
  read(members: Rule<object>, input: unknown): EndpointDraft {
    const problems = new Problems();
    const read: object | undefined = members(input, problems, '');
    const given = Object.entries(read ?? {}).filter(([, value]) => value !== undefined);
    const kept = given.filter(([, value]) => value !== null);
    const pick = (isSetting: boolean): object =>
      Object.fromEntries(
        kept.filter(([name]) => Object.hasOwn(STORED_SETTINGS, name) === isSetting),
      );
    const settings: StoredEndpointSettings = pick(true);
    const others: Omit<EndpointDraft, 'settings' | 'removed'> = pick(false);
    this.checkUse(settings, problems, others.signing !== 'publisher');
    if (!problems.has('profile', 'secret')) this.checkSecret(others.secret, settings, problems);
    checkSubscriptions(others.events, this.options.events, problems);
    if ((members as unknown) === NEW_ENDPOINT) {
      checkCredentials(others.credentials, this.profileOf(settings), problems);
    }
    checkTokenUrl(others.credentials, this.options.egress, problems);
    throwIfWrong(problems, others.url === undefined ? undefined : this.refusalOf(others.url));
    const removed = given.filter(([, value]) => value === null).map(([name]) => name);
    // Copied: the caller may change the input while the URL is resolved.
    return frozenCopy({ ...others, settings, removed });
  }

  private checkSecret(
    secret: string | undefined,
    settings: StoredEndpointSettings,
    at: Problems,
  ): void {
    if (secret === undefined) return;
    const problem = secretProblem(secret, this.profileOf(settings));
    if (problem !== undefined) at.add('secret', problem);
  }

  /** @param hasSecret - whether the endpoint has its own */
  private checkUse(own: StoredEndpointSettings, at: Problems, hasSecret: boolean): void {
    // Inherited settings were checked with the publisher's.
    if (own.profile === undefined && own.method === undefined) return;
    const settled = applySettings(this.options.defaults, own);
    checkProfile(hasSecret ? { ...settled, standardWebhooks: hasSecret } : settled, at);
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

/** Applies a change to an endpoint, except for new credentials. */
export function patched(
  current: StoredEndpoint,
  { settings, removed, ...others }: Omit<EndpointDraft, 'credentials'>,
): StoredEndpoint {
  return {
    ...without(current, removed),
    ...others,
    settings: { ...without(current.settings, removed), ...settings },
  };
}

/**
 * Whether a change touches no member that a concurrent change has touched. Credentials are meant for the URL that the endpoint had, so
 * they touch it too.
 */
export function commutes(
  { settings, removed, ...others }: EndpointDraft,
  before: StoredEndpoint,
  now: StoredEndpoint,
): boolean {
  const touched = [...Object.keys(others), ...Object.keys(settings), ...removed];
  if (others.credentials !== undefined) touched.push('url');
  const valueOf = (endpoint: StoredEndpoint, name: string): string =>
    JSON.stringify({ ...endpoint.settings, ...endpoint }[name as keyof StoredEndpoint]);
  return touched.every((name) => valueOf(before, name) === valueOf(now, name));
}

function without<T extends object>(value: T, names: readonly string[]): T {
  return Object.fromEntries(Object.entries(value).filter(([name]) => !names.includes(name))) as T;
}
