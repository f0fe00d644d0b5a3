import type { WebhookClock } from '../clock/webhook-clock.js';
import type { EgressPolicy } from '../egress/egress-policy.js';
import type { WebhookEventCatalog } from '../events/event-catalog.js';
import { isWebhookError } from '../errors/webhook.error.js';
import type { Problems } from '../options/problems.js';
import {
  distinct,
  flag,
  instance,
  list,
  object,
  optional,
  type Read,
  rule,
  unchecked,
  unless,
} from '../options/rules.js';
import {
  applySettings,
  ENDPOINT_SETTINGS,
  type EndpointSettings,
  type ResolvedEndpointSettings,
} from '../sending/endpoint.js';
import {
  checkCredentials,
  CREDENTIALS,
  type EndpointCredentials,
} from '../sending/endpoint-credentials.js';
import { checkProfile, isStandardWebhooks, tokenProfile } from '../sending/sent-profile.js';
import type { EndpointSigner, PublisherKeys } from '../signing/endpoint-signer.js';
import {
  KEY_OPTIONS,
  type SigningOptions,
  type SigningResolver,
} from '../signing/signing.resolver.js';
import {
  STANDARD_WEBHOOKS_SECRET,
  STANDARD_WEBHOOKS_SIGNING,
  type StandardWebhooksSigner,
  type StandardWebhooksSigningOptions,
} from '../signing/standard-webhooks-signer.js';
import { eventPatternProblem } from '../token/event-name.js';
import { isKeyId, KEY_ID_RULE, pathSegment } from '../token/identifier.js';
import type { SigningKeyInput } from '../token/keys/signing-key.js';
import type { SentProfile } from '../token/webhook-token.constants.js';
import { FILTER, type WebhookEndpointFilter } from './endpoint-filter.js';
import type { ResolvedEndpointLimits } from './endpoint-limits.js';
import type { EndpointStore } from './endpoint-store.js';
import { MemoryEndpointStore } from './memory-endpoint.store.js';
import { type SealingKey, sealingKeyProblem, SecretSealer } from './secret-sealer.js';

/** A configured endpoint: where events are sent, and which ones. */
export interface WebhookEndpointOptions extends EndpointSettings {
  /** Names the endpoint in results, logs and queues; 1 to 255 characters, unique, and not `.` or `..`. */
  readonly id: string;
  /** `https:`, without user name and password. */
  readonly url: string;
  /** Names or patterns of its events, such as `order.*` and `refund.**`; default `['**']`, every event. */
  readonly events?: readonly string[] | undefined;
  /** The secret shared with this endpoint; default: the publisher's. With a profile of Standard Webhooks, `whsec_…`. */
  readonly secret?: string | undefined;
  /** The secret of Standard Webhooks, if it is not `secret`. */
  readonly standardWebhooks?: StandardWebhooksSigningOptions | undefined;
  /** A key with its algorithm, or a signer, instead of `secret`. */
  readonly key?: SigningKeyInput | undefined;
  /** Rotating keys, as {@link WebhookPublisherOptions.keys}, instead of `secret`. */
  readonly keys?: PublisherKeys | undefined;
  /** The `iss` of its tokens; default: the publisher's. */
  readonly issuer?: string | undefined;
  /** The tenant whose events it receives; default: events without a tenant. */
  readonly tenant?: string | undefined;
  /** Whether it is disabled; default `false`. */
  readonly disabled?: boolean | undefined;
  /** Which of these events `publish` sends, by their content; default: all. `send` ignores it. */
  readonly filter?: WebhookEndpointFilter | undefined;
  /** A client certificate, secret headers or OAuth 2, if the endpoint requires more than the signature. */
  readonly credentials?: EndpointCredentials | undefined;
}

export interface ResolvedEndpoint extends ResolvedEndpointSettings {
  readonly id: string;
  readonly url: string;
  readonly events: readonly string[];
  readonly tenant: string | undefined;
  readonly disabled: boolean;
  readonly filter?: WebhookEndpointFilter | undefined;
  readonly credentials?: (() => EndpointCredentials) | undefined;
}

/** The publisher's options that endpoints need. */
export interface ResolvedEndpointOptions {
  readonly endpointStore: EndpointStore;
  readonly sealer: SecretSealer;
  readonly issuer: string;
  /** Seconds; absent for the default. */
  readonly tokenLifetime: number | undefined;
  readonly endpoints: readonly ResolvedEndpoint[];
  /** Settings of URLs that callers pass to `send`, and defaults of endpoints. */
  readonly defaults: ResolvedEndpointSettings;
  readonly endpointLimits: ResolvedEndpointLimits;
  readonly egress: EgressPolicy;
  /** Absent if the application has defined none. */
  readonly events: WebhookEventCatalog | undefined;
  readonly clock: WebhookClock;
}

/** Names or patterns of events; whether they are defined is checked with the application's events. */
export const PATTERNS = list(
  unless<string>((pattern) => eventPatternProblem(pattern)),
  'must be a list of event names or patterns; leave it out for every event',
  { min: 1 },
);

export const STORED_SETTINGS = { ...ENDPOINT_SETTINGS, filter: optional(FILTER) };

const ENDPOINT = object<WebhookEndpointOptions>()(
  {
    ...STORED_SETTINGS,
    id: pathSegment('id'),
    url: unchecked<string>(),
    events: optional(PATTERNS, ['**']),
    secret: unchecked<string | undefined>(),
    standardWebhooks: optional(STANDARD_WEBHOOKS_SIGNING),
    key: unchecked<SigningKeyInput | undefined>(),
    keys: unchecked<PublisherKeys | undefined>(),
    issuer: unchecked<string | undefined>(),
    tenant: optional(pathSegment('tenant')),
    credentials: optional(CREDENTIALS),
    disabled: optional(flag, false),
  },
  { form: 'an object with at least an id and a url' },
);

type ReadEndpoint = Read<typeof ENDPOINT>;

export const ENDPOINTS = distinct(
  list(ENDPOINT, 'must be a list of endpoints'),
  'id',
  'is used by another endpoint: ids are unique',
);

interface EndpointContext {
  /** The key of endpoints that have none of their own. */
  readonly publisher: SigningOptions;
  readonly signing: SigningResolver;
  /** Absent if its own options are invalid; URLs are not checked then. */
  readonly egress: EgressPolicy | undefined;
  readonly events: WebhookEventCatalog | undefined;
}

/** @param endpoints - `undefined` for one that is no object */
export function resolveEndpoints(
  endpoints: readonly (ReadEndpoint | undefined)[],
  context: EndpointContext,
  defaults: ResolvedEndpointSettings,
  problems: Problems,
): ResolvedEndpoint[] {
  return endpoints.flatMap((endpoint, index) =>
    endpoint === undefined
      ? []
      : resolveEndpoint(endpoint, context, defaults, problems.below(`endpoints[${index}]`)),
  );
}

function resolveEndpoint(
  endpoint: ReadEndpoint,
  context: EndpointContext,
  defaults: ResolvedEndpointSettings,
  at: Problems,
): ResolvedEndpoint {
  const { id, tenant, disabled, events, filter } = endpoint;
  const profile = endpoint.profile ?? defaults.profile;
  const { secret } = endpoint;
  const standardWebhooks = standardWebhooksOf(endpoint, profile, at);
  const hasNoToken = endpoint.standardWebhooks === undefined && tokenProfile(profile) === undefined;
  const own = resolveOwnSigner(
    hasNoToken ? { ...endpoint, secret: undefined } : endpoint,
    context,
    at,
  );
  const settled = applySettings(
    {
      ...defaults,
      signer: own ?? defaults.signer,
      standardWebhooks: standardWebhooks ?? defaults.standardWebhooks,
    },
    endpoint,
  );
  const hasOwnKey = own !== undefined || secret !== undefined || standardWebhooks !== undefined;
  // Inherited settings are checked once, with the publisher's.
  if (hasOwnKey || endpoint.profile !== undefined || endpoint.method !== undefined) {
    checkProfile(settled, at);
  }
  checkSubscriptions(events, context.events, at);
  const { credentials } = endpoint;
  checkCredentials(credentials, profile, at);
  checkTokenUrl(credentials, context.egress, at);
  return {
    ...settled,
    id,
    url: resolveUrl(endpoint, context.egress, at),
    events,
    disabled,
    tenant,
    filter,
    credentials: credentials && (() => credentials),
  };
}

/** Checks the URL of the token endpoint alone; its addresses are checked for every token. */
export function checkTokenUrl(
  credentials: EndpointCredentials | undefined,
  egress: EgressPolicy | undefined,
  at: Problems,
): void {
  const url = credentials?.oauth2?.tokenUrl;
  if (url === undefined || at.has('credentials')) return;
  try {
    egress?.checkUrl(url);
  } catch (error) {
    if (!isWebhookError(error, 'destination_blocked')) throw error;
    at.add('credentials.oauth2.tokenUrl', error.message);
  }
}

/** The signer of Standard Webhooks. Without a secret of its own, it has that of the tokens; without tokens, `secret` is its own. */
export function standardWebhooksOf(
  { secret, standardWebhooks }: Pick<ReadEndpoint, 'secret' | 'standardWebhooks'>,
  profile: SentProfile,
  at: Problems,
): StandardWebhooksSigner | undefined {
  const isShared = isStandardWebhooks(profile) && standardWebhooks === undefined;
  if (!isShared || secret === undefined || at.has('secret')) return standardWebhooks;
  const name = tokenProfile(profile) === undefined ? 'secret' : 'standardWebhooks';
  return STANDARD_WEBHOOKS_SECRET(secret, at, name);
}

function resolveOwnSigner(
  { secret, key, keys, issuer }: ReadEndpoint,
  { publisher, signing }: EndpointContext,
  at: Problems,
): EndpointSigner | undefined {
  const hasKey = [secret, key, keys].some((one) => one !== undefined);
  if (!hasKey && issuer === undefined) return undefined;
  const material = hasKey ? { secret, key, keys } : publisher;
  // A problem of inherited settings is listed once, with the publisher's.
  const own = [...(issuer === undefined ? [] : ['issuer']), ...(hasKey ? KEY_OPTIONS : [])];
  return signing.resolve({ ...material, issuer: issuer ?? publisher.issuer }, own, at);
}

function resolveUrl(
  { id, url }: ReadEndpoint,
  egress: EgressPolicy | undefined,
  at: Problems,
): string {
  try {
    return egress?.checkUrl(url).href ?? '';
  } catch (error) {
    if (!isWebhookError(error, 'destination_blocked')) throw error;
    at.add('url', `endpoint "${id}": ${error.message}`);
    return '';
  }
}

/** Checks that each valid pattern matches one of the application's events, if it has defined any. */
export function checkSubscriptions(
  patterns: readonly string[] | undefined,
  events: WebhookEventCatalog | undefined,
  at: Problems,
): void {
  patterns?.forEach((pattern: string | undefined, index) => {
    const problem = pattern === undefined ? undefined : events?.subscriptionProblem(pattern);
    if (problem !== undefined) at.add(`events[${index}]`, problem);
  });
}

const SEALING_KEY = object<SealingKey>()({
  id: rule<string>(isKeyId, KEY_ID_RULE.replace(/^kid/, 'id')),
  key: unless<string>(sealingKeyProblem),
});

/** Keys that encrypt the secrets of endpoints, each with its own id. */
export const SEALING_KEYS = distinct(
  list(SEALING_KEY, 'must be a list with at least one key: { id, key }', { min: 1 }),
  'id',
  'is listed twice: give each key its own id',
);

export const ENDPOINT_STORE = instance<EndpointStore>(
  'an EndpointStore',
  'insert',
  'find',
  'subscribed',
  'count',
  'list',
  'replace',
  'remove',
);

export function resolveEndpointStore(
  {
    endpointStore = new MemoryEndpointStore(),
    sealingKeys,
  }: { readonly endpointStore?: EndpointStore; readonly sealingKeys?: readonly SealingKey[] },
  at: Problems,
): Pick<ResolvedEndpointOptions, 'endpointStore' | 'sealer'> {
  if (sealingKeys === undefined && endpointStore.durable && !at.has('sealingKeys')) {
    at.add(
      'sealingKeys',
      'is required with a durable endpointStore, which stores secrets: set `sealingKeys: [{ id: \'1\', key }]` with a key of "openssl rand -base64 32"',
    );
  }
  const isSealed = sealingKeys !== undefined && !at.has('sealingKeys');
  return {
    endpointStore,
    sealer: isSealed ? new SecretSealer(sealingKeys) : SecretSealer.ofProcess(),
  };
}
