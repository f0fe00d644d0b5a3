import { DAY, SECOND } from '../clock/duration.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import type { DelivererOptions } from '../deliveries/webhook.deliverer.js';
import { EGRESS, EgressPolicy } from '../egress/egress-policy.js';
import { EgressProxy } from '../egress/egress-proxy.js';
import { CERTIFICATES, type EgressTlsOptions } from '../egress/guarded-agent.js';
import { ENDPOINT_LIMITS } from '../endpoints/endpoint-limits.js';
import {
  ENDPOINTS,
  ENDPOINT_STORE,
  resolveEndpoints,
  resolveEndpointStore,
  type ResolvedEndpointOptions,
  SEALING_KEYS,
  standardWebhooksOf,
} from '../endpoints/endpoint-options.js';
import { type ConfigurationProblem, WebhookConfigurationError } from '../errors/webhook.error.js';
import type { WebhookEventCatalog } from '../events/event-catalog.js';
import { Problems } from '../options/problems.js';
import {
  duration,
  instance,
  isOptions,
  object,
  optional,
  orFalse,
  type Read,
  required,
  type Rule,
  rule,
  seconds,
  text,
  unchecked,
  unless,
} from '../options/rules.js';
import { unprinted } from '../options/unprinted.js';
import { InProcessQueue } from '../queue/in-process.queue.js';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import { checkTls } from '../sending/endpoint-credentials.js';
import { ENDPOINT_SETTINGS, type ResolvedEndpointSettings } from '../sending/endpoint.js';
import { resolveRetryOptions, RETRY } from '../sending/retry-policy.js';
import { checkProfile, profileUseProblem } from '../sending/sent-profile.js';
import type { SenderOptions } from '../sending/webhook.sender.js';
import type { PublisherKeys, EndpointSigner } from '../signing/endpoint-signer.js';
import { checkJwks, JWKS, type ResolvedJwks } from '../signing/jwks.route.js';
import { PublisherLog } from '../signing/publisher-log.js';
import type {
  HeldSigningKeys,
  ProvidedSigningKeys,
  SigningKeySource,
} from '../signing/signing-keys.js';
import { KEY_OPTIONS, SigningResolver } from '../signing/signing.resolver.js';
import { STANDARD_WEBHOOKS_SIGNING } from '../signing/standard-webhooks-signer.js';
import { publicationProblems, keySetProblems } from '../signing/webhook.jwks.js';
import type { SigningKeyInput } from '../token/keys/signing-key.js';
import { DEFAULT_PROFILE } from '../token/webhook-token.constants.js';
import type { WebhookPublisherOptions } from './publisher-options.js';

/** Injection token of the {@link ResolvedPublisherOptions}. */
export const PUBLISHER_OPTIONS = Symbol('nestjs-webhook-token/publisher-options');

/** The publisher's options, checked and filled; durations in milliseconds. Each reader takes the part it needs. */
export interface ResolvedPublisherOptions
  extends ResolvedEndpointOptions, SenderOptions, DelivererOptions {
  /** Keys that are loaded before anything is published. */
  readonly provided: readonly ProvidedSigningKeys[];
  /** The keys of the publisher's own issuer: its default ones, and those of endpoints. */
  readonly ownKeys: readonly SigningKeySource[];
  /** Absent if no JWKS is served. */
  readonly jwks: ResolvedJwks | undefined;
  readonly queue: WebhookQueue;
  readonly transactionHost: string | false | undefined;
  readonly shutdownTimeout: number;
}

/** Milliseconds for DNS, connection, TLS, request and answer of one attempt. */
const DEFAULT_ATTEMPT_TIMEOUT = 15 * SECOND;

const TLS: Rule<EgressTlsOptions> = (value, at, name) => {
  const tls = TLS_OPTIONS(value, at, name);
  return isOptions(tls) ? unprinted(tls, '[tls]') : tls;
};

const TLS_OPTIONS = object<EgressTlsOptions>()(
  {
    ca: optional(CERTIFICATES),
    cert: unchecked<EgressTlsOptions['cert']>(),
    key: unchecked<EgressTlsOptions['key']>(),
    pfx: unchecked<EgressTlsOptions['pfx']>(),
    passphrase: unchecked<EgressTlsOptions['passphrase']>(),
  },
  {
    across(tls, at) {
      const missing = 'is missing: a client certificate needs cert and key';
      at.require(tls.key === undefined || tls.cert !== undefined, 'cert', missing);
      at.require(tls.cert === undefined || tls.key !== undefined, 'key', missing);
      checkTls(tls, at, 'pass certificates and keys as PEM, and the right passphrase');
    },
  },
);

const { envelope, hash, method, profile, timeout } = ENDPOINT_SETTINGS;

const PUBLISHER = object<WebhookPublisherOptions>()(
  {
    ...EGRESS,
    issuer: required(unchecked<string>()),
    secret: unchecked<string | undefined>(),
    key: unchecked<SigningKeyInput | undefined>(),
    keys: unchecked<PublisherKeys | undefined>(),
    jwks: JWKS,
    tokenLifetime: optional(seconds),
    hash,
    profile,
    standardWebhooks: optional(STANDARD_WEBHOOKS_SIGNING),
    envelope,
    method,
    // Below the 8 kB that most servers and proxies read by default, with a margin for headers that a proxy adds.
    maxHeadBytes: optional(
      rule<number>(
        (value) => Number.isInteger(value) && (value as number) > 0,
        'must be a positive whole number of bytes',
      ),
      7_168,
    ),
    endpoints: optional(ENDPOINTS, []),
    endpointStore: optional(ENDPOINT_STORE),
    endpointLimits: ENDPOINT_LIMITS,
    sealingKeys: optional(SEALING_KEYS),
    timeout,
    retry: optional(RETRY),
    disableAfter: optional(duration(), 5 * DAY),
    queue: optional(instance<WebhookQueue>('a WebhookQueue', 'enqueue', 'consume')),
    transactionHost: optional(
      orFalse(text('must be the connectionName of a ClsPluginTransactional, or false')),
    ),
    tls: optional(TLS),
    proxy: optional(unless<string>((url) => EgressProxy.problemOf(url))),
    shutdownTimeout: optional(duration(), 10 * SECOND),
  },
  {
    form: 'an object: { issuer, secret, endpoints }',
    across({ secret, key, keys }, at) {
      const isMissing = [secret, key, keys].every((one) => one === undefined);
      at.require(
        !isMissing || at.has('secret', 'key', 'keys'),
        'secret',
        'the secret is missing: set a secret, a key or keys, even if every endpoint has its own; is the environment variable set?',
      );
    },
  },
);

/** Facts about the process. */
interface PublisherOptionsContext {
  readonly clock: WebhookClock;
  readonly events?: WebhookEventCatalog | undefined;
  /** In production, the queue must be set explicitly. */
  readonly production: boolean;
}

/** @param problems - to which those of the publisher are added; with one of them, nothing is resolved */
export function resolvePublisherOptions(
  given: WebhookPublisherOptions,
  { clock, events, production }: PublisherOptionsContext,
  problems = new Problems(),
): {
  readonly resolved: ResolvedPublisherOptions | undefined;
  readonly problems: Problems['all'];
} {
  const at = problems.below('publisher');
  const options: Read<typeof PUBLISHER> | undefined = PUBLISHER(given, problems, 'publisher');
  if (options === undefined) return { resolved: undefined, problems: problems.all };
  const { issuer, tokenLifetime } = options;
  const hasEgress = !at.has(...Object.keys(EGRESS));
  const egress = hasEgress ? new EgressPolicy(options) : undefined;
  const signing = new SigningResolver({
    issuer,
    lifetime: tokenLifetime,
    clock,
    isPublished: options.jwks !== undefined,
  });
  const defaults = resolveDefaults(options, signing, at);
  const context = { publisher: options, signing, egress, events };
  const listed: typeof options.endpoints | undefined = options.endpoints;
  const endpoints = resolveEndpoints(listed ?? [], context, defaults, at);
  const store = resolveEndpointStore(options, at);
  if (options.jwks !== undefined) checkJwks(signing, at);
  at.require(
    !production || options.queue !== undefined || at.has('queue'),
    'queue',
    'must be chosen in production: set `queue: new InProcessQueue()` to accept that a crash loses pending deliveries, or set a durable queue',
  );
  if (egress === undefined || at.has('')) return { resolved: undefined, problems: problems.all };
  return {
    resolved: {
      ...store,
      issuer,
      tokenLifetime,
      endpoints,
      endpointLimits: options.endpointLimits,
      defaults,
      provided: signing.provided,
      ownKeys: signing.sources,
      jwks: options.jwks,
      maxHeadBytes: options.maxHeadBytes,
      disableAfter: options.disableAfter,
      egress,
      events,
      tls: options.tls,
      proxy:
        options.proxy === undefined
          ? undefined
          : new EgressProxy(options.proxy, options.tls?.ca, new PublisherLog()),
      clock,
      shutdownTimeout: options.shutdownTimeout,
      transactionHost: options.transactionHost,
      queue: options.queue ?? new InProcessQueue({ clock }),
    },
    problems: problems.all,
  };
}

/**
 * Resolves the publisher's own settings: for URLs that callers pass, and for settings that endpoints leave out.
 *
 * After a problem the values are placeholders, for further checks only.
 */
function resolveDefaults(
  options: Read<typeof PUBLISHER>,
  signing: SigningResolver,
  at: Problems,
): ResolvedEndpointSettings {
  const signer = signing.resolve(options, ['issuer', 'tokenLifetime', ...KEY_OPTIONS], at);
  const { profile = DEFAULT_PROFILE } = options;
  const settings: ResolvedEndpointSettings = {
    // A missing signer is a problem, and then the publisher does not start.
    signer: signer as EndpointSigner,
    profile,
    standardWebhooks: standardWebhooksOf(options, profile, at),
    envelope: options.envelope ?? true,
    hash: options.hash,
    method: options.method ?? 'auto',
    timeout: options.timeout ?? DEFAULT_ATTEMPT_TIMEOUT,
    headers: {},
    jti: 'attempt',
    onDead: 'skip',
    retry: resolveRetryOptions(options.retry),
  };
  checkProfile(settings, at);
  return settings;
}

/**
 * Loads the keys of providers, and checks what could not be checked without them.
 *
 * @throws {@link WebhookConfigurationError} with every problem of the keys; and whatever a provider throws
 */
export async function loadSigningKeys({
  provided,
  ownKeys,
  jwks,
  defaults,
  endpoints,
}: ResolvedPublisherOptions): Promise<true> {
  await Promise.all(provided.map((keys) => keys.start()));
  const problems = [
    ...(jwks === undefined ? [] : publicProblems(ownKeys.map(({ known }) => known))),
    ...profileProblems(defaults, 'publisher'),
    ...endpoints.flatMap((endpoint, index) =>
      // What an endpoint takes over from the publisher is reported there, once.
      endpoint.signer === defaults.signer && endpoint.profile === defaults.profile
        ? []
        : profileProblems(endpoint, `publisher.endpoints[${index}]`),
    ),
  ];
  if (problems.length > 0) throw new WebhookConfigurationError(problems);
  return true;
}

function publicProblems(lists: readonly HeldSigningKeys[]): ConfigurationProblem[] {
  // One provider may serve several issuers; whether its keys are published is only seen here.
  const single = lists.flatMap(({ keys }) => publicationProblems(keys));
  const messages =
    single.length > 0 ? single.map(({ message }) => `a key ${message}`) : keySetProblems(lists);
  return messages.map((message) => ({ path: 'publisher.jwks', message }));
}

function profileProblems(settings: ResolvedEndpointSettings, path: string): ConfigurationProblem[] {
  const message = profileUseProblem(settings);
  return message === undefined ? [] : [{ path: `${path}.profile`, message }];
}
