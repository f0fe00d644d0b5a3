import type { WebhookClock } from '../clock/webhook-clock.js';
import type { EgressPolicy } from '../egress/egress-policy.js';
import type { WebhookEventCatalog } from '../events/event-catalog.js';
import { isWebhookError } from '../errors/webhook.error.js';
import type { ConfigurationFaults } from '../options/configuration-faults.js';
import { checkShape, hasMethods, isOptions, type OptionShape } from '../options/option-shape.js';
import {
  applySettings,
  checkProfile,
  type EndpointSettings,
  type ResolvedEndpointSettings,
} from '../sending/endpoint.js';
import type { EndpointSigner, PublisherKeys } from '../signing/endpoint-signer.js';
import type { SigningOptions, SigningResolver } from '../signing/signing.resolver.js';
import { eventPatternFault } from '../token/event-name.js';
import { identifierRule, isIdentifier, isKeyId, KEY_ID_RULE } from '../token/identifier.js';
import type { SigningKeyInput } from '../token/keys/signing-key.js';
import type { EndpointStore } from './endpoint-store.js';
import { MemoryEndpointStore } from './memory-endpoint.store.js';
import { type SealingKey, sealingKeyFault, SecretSealer } from './secret-sealer.js';

/** A configured endpoint: where events are sent, and which ones. */
export interface WebhookEndpointOptions extends EndpointSettings {
  /** Names the endpoint in results, logs and queues; 1 to 255 characters, unique. */
  readonly id: string;
  /** `https:`, without user name and password. */
  readonly url: string;
  /** Names or patterns of its events, such as `order.*` and `refund.**`; default `['**']`, every event. */
  readonly events?: readonly string[] | undefined;
  /** The secret shared with this endpoint; default: the publisher's. */
  readonly secret?: string | undefined;
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
}

/** A resolved endpoint. */
export interface ResolvedEndpoint extends ResolvedEndpointSettings {
  readonly id: string;
  readonly url: string;
  readonly events: readonly string[];
  readonly tenant?: string;
  readonly disabled: boolean;
}

/** The publisher's options that endpoints need. */
export interface ResolvedEndpointOptions extends ResolvedEndpointStore {
  readonly issuer: string;
  /** Seconds; absent for the default. */
  readonly tokenLifetime: number | undefined;
  readonly endpoints: readonly ResolvedEndpoint[];
  /** Settings of URLs that callers pass to `send`, and defaults of endpoints. */
  readonly defaults: ResolvedEndpointSettings;
  readonly egress: EgressPolicy;
  /** Absent if the application has defined none. */
  readonly events: WebhookEventCatalog | undefined;
  readonly clock: WebhookClock;
}

const ENDPOINT: OptionShape<WebhookEndpointOptions> = {
  id: undefined,
  url: undefined,
  events: undefined,
  secret: undefined,
  key: undefined,
  keys: undefined,
  issuer: undefined,
  audience: undefined,
  subject: undefined,
  headers: undefined,
  method: undefined,
  tenant: undefined,
  timeout: undefined,
  hash: undefined,
  profile: undefined,
  jti: undefined,
  disabled: undefined,
};

/** Options and faults have the same names. */
const MATERIAL_PATHS = { secret: 'secret', key: 'key', keys: 'keys' };

/** What all endpoints of a publisher share. */
interface EndpointContext {
  /** The key of endpoints that have none of their own. */
  readonly publisher: SigningOptions;
  readonly signing: SigningResolver;
  /** Absent if its own options are invalid; URLs are not checked then. */
  readonly egress: EgressPolicy | undefined;
  readonly events: WebhookEventCatalog | undefined;
}

/** Resolves the configured endpoints. Faults are collected, not thrown. */
export function resolveEndpoints(
  endpoints: readonly WebhookEndpointOptions[],
  context: EndpointContext,
  defaults: ResolvedEndpointSettings,
  faults: ConfigurationFaults,
): ResolvedEndpoint[] {
  if (!Array.isArray(endpoints)) {
    faults.add('endpoints', 'must be a list of endpoints');
    return [];
  }
  const ids = new Set<unknown>();
  return endpoints.flatMap((endpoint: WebhookEndpointOptions | null | undefined, index) => {
    const at = faults.below(`endpoints[${index}]`);
    if (!isOptions(endpoint)) {
      at.add('', 'must be an object with at least an id and a url');
      return [];
    }
    checkShape(endpoint, ENDPOINT, at);
    at.require(!ids.has(endpoint.id), 'id', 'is used by another endpoint: ids are unique');
    ids.add(endpoint.id);
    return resolveEndpoint(endpoint, context, defaults, at);
  });
}

function resolveEndpoint(
  endpoint: WebhookEndpointOptions,
  context: EndpointContext,
  defaults: ResolvedEndpointSettings,
  faults: ConfigurationFaults,
): ResolvedEndpoint {
  const { id, tenant, disabled = false } = endpoint;
  faults.require(typeof disabled === 'boolean', 'disabled', 'must be a boolean');
  faults.require(isIdentifier(id), 'id', identifierRule('id'));
  faults.require(tenant === undefined || isIdentifier(tenant), 'tenant', identifierRule('tenant'));
  const own = resolveOwnSigner(endpoint, context, faults);
  const settled = applySettings({ ...defaults, signer: own ?? defaults.signer }, endpoint, faults);
  // Inherited settings are checked once, with the publisher's.
  if (own !== undefined || endpoint.profile !== undefined || endpoint.method !== undefined) {
    checkProfile(settled, faults);
  }
  return {
    ...settled,
    id,
    url: resolveUrl(endpoint, context.egress, faults),
    events: resolvePatterns(endpoint.events, context.events, faults),
    disabled,
    ...(tenant !== undefined && { tenant }),
  };
}

function resolveOwnSigner(
  { secret, key, keys, issuer }: WebhookEndpointOptions,
  { publisher, signing }: EndpointContext,
  faults: ConfigurationFaults,
): EndpointSigner | undefined {
  const hasKey = [secret, key, keys].some((one) => one !== undefined);
  if (!hasKey && issuer === undefined) return undefined;
  const material = hasKey ? { secret, key, keys } : publisher;
  // A fault of inherited settings is listed once, with the publisher's.
  const paths = {
    ...(issuer !== undefined && { issuer: 'issuer' }),
    ...(hasKey && MATERIAL_PATHS),
  };
  return signing.resolve({ ...material, issuer: issuer ?? publisher.issuer }, paths, faults);
}

function resolveUrl(
  { id, url }: WebhookEndpointOptions,
  egress: EgressPolicy | undefined,
  faults: ConfigurationFaults,
): string {
  try {
    return egress?.checkUrl(url).href ?? '';
  } catch (error) {
    if (!isWebhookError(error, 'destination_blocked')) throw error;
    faults.add('url', `endpoint "${id}": ${error.message}`);
    return '';
  }
}

/** @param patterns - default: every event */
export function resolvePatterns(
  patterns: readonly string[] = ['**'],
  events: WebhookEventCatalog | undefined,
  faults: ConfigurationFaults,
): readonly string[] {
  if (!Array.isArray(patterns) || patterns.length === 0) {
    faults.add('events', 'must be a list of event names or patterns; leave it out for every event');
    return [];
  }
  patterns.forEach((pattern: string, index) => {
    const fault = eventPatternFault(pattern) ?? events?.subscriptionFault(pattern);
    if (fault !== undefined) faults.add(`events[${index}]`, fault);
  });
  return patterns;
}

const METHODS = ['insert', 'find', 'subscribed', 'list', 'replace', 'remove'];

const SEALING_KEY: OptionShape<SealingKey> = { id: undefined, key: undefined };

interface ResolvedEndpointStore {
  readonly endpointStore: EndpointStore;
  readonly sealer: SecretSealer;
}

/** Resolves the options of the endpoint store. Faults are collected, not thrown. */
export function resolveEndpointStore(
  options: {
    readonly endpointStore?: EndpointStore | undefined;
    readonly sealingKeys?: readonly SealingKey[] | undefined;
  },
  faults: ConfigurationFaults,
): ResolvedEndpointStore {
  const { endpointStore = new MemoryEndpointStore(), sealingKeys } = options;
  const isStore = hasMethods(endpointStore, METHODS);
  faults.require(isStore, 'endpointStore', 'must be an EndpointStore');
  const before = faults.all.length;
  if (sealingKeys !== undefined) {
    checkSealingKeys(sealingKeys, faults);
  } else if (isStore && endpointStore.durable) {
    faults.add(
      'sealingKeys',
      'is required with a durable endpointStore, which stores secrets: set `sealingKeys: [{ id: \'1\', key }]` with a key of "openssl rand -base64 32"',
    );
  }
  const isSealed = sealingKeys !== undefined && faults.all.length === before;
  return {
    endpointStore,
    sealer: isSealed ? new SecretSealer(sealingKeys) : SecretSealer.ofProcess(),
  };
}

function checkSealingKeys(keys: unknown, faults: ConfigurationFaults): void {
  if (!Array.isArray(keys) || keys.length === 0) {
    faults.add('sealingKeys', 'must be a list with at least one key: { id, key }');
    return;
  }
  const ids = new Set<unknown>();
  keys.forEach((entry: unknown, index) => {
    const at = faults.below(`sealingKeys[${index}]`);
    if (!isOptions(entry)) return at.add('', 'must be an object: { id, key }');
    const { id, key } = checkShape(entry, SEALING_KEY, at);
    at.require(isKeyId(id), 'id', KEY_ID_RULE.replace(/^kid/, 'id'));
    at.require(!ids.has(id), 'id', 'is listed twice: give each key its own id');
    ids.add(id);
    const fault = sealingKeyFault(key);
    if (fault !== undefined) at.add('key', fault);
  });
}
