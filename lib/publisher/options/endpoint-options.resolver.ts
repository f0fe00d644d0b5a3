import { validateHeaderName, validateHeaderValue } from 'node:http';
import type { EgressPolicy } from '../../egress/egress-policy.js';
import { isWebhookError } from '../../errors/webhook.error.js';
import type { ConfigurationFaults } from '../../options/configuration-faults.js';
import { checkShape, isOptions, type OptionShape } from '../../options/option-shape.js';
import { unprintedHeaders } from '../../options/unprinted.js';
import { checkProfile } from '../../sending/destination-profile.js';
import type { SigningResolver } from '../../signing/signing.resolver.js';
import { eventPatternFault } from '../../token/event-name.js';
import { identifierRule, isIdentifier } from '../../token/identifier.js';
import { isHashAlgorithm } from '../../token/payload-hash.js';
import { isAudience } from '../../token/validate-claims.js';
import { DEFAULT_PROFILE, HASH_ALGORITHMS } from '../../token/webhook-token.constants.js';
import { DEFAULT_ATTEMPT_TIMEOUT } from '../publisher.constants.js';
import type {
  DestinationSigner,
  ResolvedDestination,
  ResolvedEndpoint,
  WebhookEndpointOptions,
  WebhookPublisherOptions,
} from './publisher-options.interface.js';

/**
 * They frame the request or its body, authenticate it, or are for one connection: a second opinion on any of it
 * is how requests are smuggled.
 */
const REFUSED = new Set([
  'authorization',
  'connection',
  'content-encoding',
  'content-length',
  'content-type',
  'expect',
  'host',
  'keep-alive',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** Says what is wrong with a header the user configured, and what to do; `undefined` for a good one. */
function headerFault(name: string, value: unknown): string | undefined {
  if (REFUSED.has(name.toLowerCase())) {
    return 'is set by the library, which frames and authenticates the request: remove it';
  }
  try {
    validateHeaderName(name);
  } catch {
    return 'is no header name';
  }
  if (typeof value !== 'string') return 'must be a text';
  try {
    validateHeaderValue(name, value);
    return undefined;
  } catch {
    return 'holds a character that a header cannot carry';
  }
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

/** Here options and faults have the same names. */
const MATERIAL_PATHS = { secret: 'secret', key: 'key', keys: 'keys' };

/** A receiver that needs longer holds a slot of the queue that others need: it should answer first and work after. */
const LONGEST_TIMEOUT = '15m';

const METHODS: ReadonlySet<unknown> = new Set(['auto', 'HEAD', 'POST']);

/** What all destinations of a publisher share. */
interface DestinationContext {
  readonly publisher: WebhookPublisherOptions;
  readonly signing: SigningResolver;
  /** Absent when its own options are at fault; URLs are not checked then. */
  readonly egress: EgressPolicy | undefined;
}

type DestinationOptions = Pick<
  WebhookEndpointOptions,
  'audience' | 'hash' | 'headers' | 'jti' | 'method' | 'profile' | 'subject' | 'timeout'
>;

/**
 * Resolves the publisher's own settings: for URLs that callers name, and for what endpoints leave out.
 *
 * On a fault the values are stand-ins, which nothing but further checks may use.
 */
export function resolveDefaults(
  { publisher, signing }: DestinationContext,
  faults: ConfigurationFaults,
): ResolvedDestination {
  const { hash, method, profile, timeout } = publisher;
  const paths = { issuer: 'issuer', lifetime: 'tokenLifetime', ...MATERIAL_PATHS };
  const signer = signing.resolve(publisher, paths, faults);
  const fallback: ResolvedDestination = {
    // A missing signer is a fault, and with a fault nobody gets to sign.
    signer: signer as DestinationSigner,
    profile: DEFAULT_PROFILE,
    method: 'auto',
    timeout: DEFAULT_ATTEMPT_TIMEOUT,
    headers: {},
    jti: 'attempt',
  };
  const settled = applySettings(fallback, { hash, method, profile, timeout }, faults);
  checkProfile(settled, faults);
  return settled;
}

/** Checks and fills the endpoints. */
export function resolveEndpoints(
  endpoints: readonly WebhookEndpointOptions[],
  context: DestinationContext,
  defaults: ResolvedDestination,
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
  context: DestinationContext,
  defaults: ResolvedDestination,
  faults: ConfigurationFaults,
): ResolvedEndpoint {
  const { id, tenant, disabled = false } = endpoint;
  faults.require(typeof disabled === 'boolean', 'disabled', 'must be a boolean');
  faults.require(isIdentifier(id), 'id', identifierRule('id'));
  faults.require(tenant === undefined || isIdentifier(tenant), 'tenant', identifierRule('tenant'));
  const own = resolveOwnSigner(endpoint, context, faults);
  const settled = applySettings({ ...defaults, signer: own ?? defaults.signer }, endpoint, faults);
  // What an endpoint takes over from the publisher unchanged is at fault there, once.
  if (own !== undefined || endpoint.profile !== undefined || endpoint.method !== undefined) {
    checkProfile(settled, faults);
  }
  return {
    ...settled,
    id,
    url: resolveUrl(endpoint, context.egress, faults),
    events: resolvePatterns(endpoint.events, faults),
    disabled,
    ...(tenant !== undefined && { tenant }),
  };
}

/** Lays an endpoint's own settings over others; faults are collected, and what is at fault is still given. */
export function applySettings(
  fallback: ResolvedDestination,
  options: DestinationOptions,
  faults: ConfigurationFaults,
): ResolvedDestination {
  const { hash, profile, method, jti, headers, audience, subject, timeout } = options;
  faults.require(
    hash === undefined || isHashAlgorithm(hash),
    'hash',
    `must be one of ${HASH_ALGORITHMS.join(', ')}`,
  );
  faults.require(
    method === undefined || METHODS.has(method),
    'method',
    "must be 'auto', 'HEAD' or 'POST'",
  );
  faults.require(
    jti === undefined || jti === 'attempt' || jti === 'delivery',
    'jti',
    "must be 'attempt' or 'delivery'",
  );
  faults.require(
    audience === undefined || isAudience(audience),
    'audience',
    'must be a text, or a list of texts, each of 1 to 255 characters',
  );
  faults.require(
    subject === undefined || isIdentifier(subject),
    'subject',
    identifierRule('subject'),
  );
  for (const [name, value] of Object.entries(headers ?? {})) {
    const fault = headerFault(name, value);
    if (fault !== undefined) faults.add(`headers[${JSON.stringify(name)}]`, fault);
  }
  const chosenHash = hash ?? fallback.hash;
  return {
    signer: fallback.signer,
    profile: profile ?? fallback.profile,
    method: method ?? fallback.method,
    timeout: faults.duration('timeout', timeout, fallback.timeout, LONGEST_TIMEOUT),
    headers: headers === undefined ? fallback.headers : unprintedHeaders(headers),
    jti: jti ?? fallback.jti,
    ...(chosenHash !== undefined && { hash: chosenHash }),
    ...(audience !== undefined && { audience }),
    ...(subject !== undefined && { subject }),
  };
}

function resolveOwnSigner(
  { secret, key, keys, issuer }: WebhookEndpointOptions,
  { publisher, signing }: DestinationContext,
  faults: ConfigurationFaults,
): DestinationSigner | undefined {
  const hasKey = [secret, key, keys].some((one) => one !== undefined);
  if (!hasKey && issuer === undefined) return undefined;
  const material = hasKey ? { secret, key, keys } : publisher;
  // A fault in what the endpoint takes over from the publisher is listed there, once.
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

/** Checks the patterns of events; without any, every event. */
export function resolvePatterns(
  patterns: readonly string[] = ['**'],
  faults: ConfigurationFaults,
): readonly string[] {
  if (!Array.isArray(patterns) || patterns.length === 0) {
    faults.add('events', 'must be a list of event names or patterns; leave it out for every event');
    return [];
  }
  patterns.forEach((pattern: string, index) => {
    const fault = eventPatternFault(pattern);
    if (fault !== undefined) faults.add(`events[${index}]`, fault);
  });
  return patterns;
}
