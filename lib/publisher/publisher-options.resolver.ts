import { createSecureContext } from 'node:tls';
import type { WebhookClock } from '../clock/webhook-clock.js';
import type { DelivererOptions } from '../deliveries/webhook.deliverer.js';
import type { DeliveryLog } from '../deliveries/delivery-log.js';
import { MemoryDeliveryLog } from '../deliveries/memory-delivery.log.js';
import { EgressPolicy } from '../egress/egress-policy.js';
import type { EgressTlsOptions } from '../egress/guarded-agent.js';
import {
  resolveEndpointStore,
  resolveEndpoints,
  type ResolvedEndpointOptions,
} from '../endpoints/endpoint-options.js';
import type { WebhookEventCatalog } from '../events/event-catalog.js';
import type { ConfigurationProblem } from '../errors/webhook.error.js';
import { ConfigurationFaults } from '../options/configuration-faults.js';
import { checkShape, isOptions, type OptionShape } from '../options/option-shape.js';
import { unprinted } from '../options/unprinted.js';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import { InProcessQueue } from '../queue/in-process.queue.js';
import { isServed, resolveJwks, type ResolvedJwks } from '../signing/jwks-options.js';
import type { ProvidedSigningKeys, SigningKeySource } from '../signing/provided-signing-keys.js';
import { SigningResolver } from '../signing/signing.resolver.js';
import type { WebhookPublisherOptions } from './publisher-options.interface.js';
import { type ResolvedEndpointSettings, applySettings, checkProfile } from '../sending/endpoint.js';
import type { EndpointSigner } from '../signing/endpoint-signer.js';
import type { SenderOptions } from '../sending/webhook.sender.js';
import { resolveRetryOptions } from '../sending/retry-policy.js';
import { DEFAULT_PROFILE } from '../token/webhook-token.constants.js';

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
  /** Absent if deliveries are not logged. */
  readonly deliveryLog: DeliveryLog | undefined;
  readonly shutdownTimeout: number;
}

/** Milliseconds for DNS, connection, TLS, request and answer of one attempt. */
const DEFAULT_ATTEMPT_TIMEOUT = 15_000;

/** Milliseconds that a shutdown waits for deliveries. */
const DEFAULT_SHUTDOWN_TIMEOUT = 10_000;

/**
 * Bytes of a request's whole head up to which HEAD is chosen: below the 8 kB that most servers and
 * proxies read by default, with a margin for headers that a proxy adds.
 */
const DEFAULT_MAX_HEAD_BYTES = 7_168;

/** Milliseconds: 5 days. */
const DEFAULT_DISABLE_AFTER = 5 * 24 * 3_600_000;

const PUBLISHER: OptionShape<WebhookPublisherOptions> = {
  issuer: undefined,
  secret: undefined,
  key: undefined,
  keys: undefined,
  jwks: undefined,
  tokenLifetime: undefined,
  hash: undefined,
  profile: undefined,
  method: undefined,
  maxHeadBytes: undefined,
  endpoints: undefined,
  endpointStore: undefined,
  sealingKeys: undefined,
  timeout: undefined,
  retry: {
    holds: isOptions,
    message: 'must be an object: { attempts, schedule, jitter, retryIf }',
  },
  disableAfter: undefined,
  transport: undefined,
  queue: undefined,
  transactionHost: undefined,
  deliveryLog: undefined,
  tls: { holds: isOptions, message: 'must be an object: { ca, cert, key, pfx, passphrase }' },
  shutdownTimeout: undefined,
  allowHttp: undefined,
  allowPrivateNetworks: undefined,
  allowedAddresses: undefined,
  allowedPorts: undefined,
};

const TLS: OptionShape<EgressTlsOptions> = {
  ca: undefined,
  cert: undefined,
  key: undefined,
  pfx: undefined,
  passphrase: undefined,
};

/** Facts about the process. */
interface PublisherOptionsContext {
  readonly clock: WebhookClock;
  readonly events?: WebhookEventCatalog | undefined;
  /** In production, the queue must be set explicitly. */
  readonly production: boolean;
}

/** The resolved options, or their faults. */
type PublisherOptionsResolution =
  | { readonly resolved: ResolvedPublisherOptions; readonly faults: readonly [] }
  | { readonly resolved?: undefined; readonly faults: readonly ConfigurationProblem[] };

/** Checks and fills the publisher's options; returns all faults with their remedies instead of throwing. */
export function resolvePublisherOptions(
  given: WebhookPublisherOptions,
  { clock, events, production }: PublisherOptionsContext,
): PublisherOptionsResolution {
  const faults = new ConfigurationFaults('publisher');
  // A required option that is missing is a fault where it is used.
  const options = checkShape(given, PUBLISHER, faults) as WebhookPublisherOptions;
  const egress = resolveEgress(options, faults);
  const maxHeadBytes = options.maxHeadBytes ?? DEFAULT_MAX_HEAD_BYTES;
  faults.require(
    Number.isInteger(maxHeadBytes) && maxHeadBytes > 0,
    'maxHeadBytes',
    'must be a positive whole number of bytes',
  );
  const signing = new SigningResolver({
    issuer: options.issuer,
    lifetime: options.tokenLifetime,
    clock,
    isPublished: isServed(options.jwks),
  });
  const context = { publisher: options, signing, egress, events };
  const defaults = resolveDefaults(options, signing, faults);
  const endpoints = resolveEndpoints(options.endpoints ?? [], context, defaults, faults);
  const store = resolveEndpointStore(options, faults);
  const jwks = resolveJwks(options.jwks, signing, faults);
  const retry = resolveRetryOptions(options.retry ?? {}, faults.below('retry'));
  const shutdownTimeout = faults.duration(
    'shutdownTimeout',
    options.shutdownTimeout,
    DEFAULT_SHUTDOWN_TIMEOUT,
  );
  const disableAfter = faults.duration('disableAfter', options.disableAfter, DEFAULT_DISABLE_AFTER);
  const { transport = 'auto' } = options;
  faults.require(
    transport === 'auto' || transport === 'axios',
    'transport',
    "must be 'auto' or 'axios'",
  );
  checkTls(options.tls, faults);
  checkQueue(options.queue, production, faults);
  const { transactionHost } = options;
  faults.require(
    transactionHost === undefined ||
      transactionHost === false ||
      (typeof transactionHost === 'string' && transactionHost !== ''),
    'transactionHost',
    'must be the connectionName of a ClsPluginTransactional, or false',
  );
  checkDeliveryLog(options.deliveryLog, faults);
  if (faults.all.length > 0 || egress === undefined) {
    return { faults: faults.all };
  }
  const queue = options.queue ?? new InProcessQueue({ clock });
  return {
    resolved: {
      ...store,
      issuer: options.issuer,
      tokenLifetime: options.tokenLifetime,
      endpoints,
      defaults,
      provided: signing.provided,
      ownKeys: signing.sources,
      jwks,
      maxHeadBytes,
      retry,
      disableAfter,
      egress,
      events,
      tls: options.tls && unprinted({ ...options.tls }, '[tls]'),
      transport,
      clock,
      shutdownTimeout,
      transactionHost,
      queue,
      deliveryLog: chooseDeliveryLog(options.deliveryLog, queue),
      readsAnswers: options.deliveryLog !== false,
    },
    faults: [],
  };
}

function resolveEgress(
  options: WebhookPublisherOptions,
  faults: ConfigurationFaults,
): EgressPolicy | undefined {
  const wrong = EgressPolicy.faults(options);
  for (const { path, message } of wrong) faults.add(path, message);
  return wrong.length > 0 ? undefined : new EgressPolicy(options);
}

function checkTls(tls: EgressTlsOptions | undefined, faults: ConfigurationFaults): void {
  if (tls === undefined) return;
  checkShape(tls, TLS, faults.below('tls'));
  try {
    createSecureContext(tls);
  } catch {
    // The error is dropped, because it may quote the key or the passphrase.
    faults.add(
      'tls',
      'cannot be read; pass certificates and keys as PEM, and the right passphrase',
    );
  }
}

function checkQueue(queue: unknown, production: boolean, faults: ConfigurationFaults): void {
  if (queue === undefined) {
    faults.require(
      !production,
      'queue',
      'must be chosen in production: set `queue: new InProcessQueue()` to accept that a crash loses pending deliveries, or set a durable queue',
    );
    return;
  }
  const { enqueue, consume } = (queue ?? {}) as { enqueue?: unknown; consume?: unknown };
  faults.require(
    typeof enqueue === 'function' && typeof consume === 'function',
    'queue',
    'must be a WebhookQueue',
  );
}

function checkDeliveryLog(log: unknown, faults: ConfigurationFaults): void {
  if (log === undefined || log === false) return;
  const { record, change } = (log ?? {}) as { record?: unknown; change?: unknown };
  faults.require(
    typeof record === 'function' && typeof change === 'function',
    'deliveryLog',
    'must be a DeliveryLog, or false to log nothing',
  );
}

function chooseDeliveryLog(
  log: DeliveryLog | false | undefined,
  queue: WebhookQueue,
): DeliveryLog | undefined {
  if (log === false) return undefined;
  // A queue in memory already bounds pending deliveries, and the log shares their bytes.
  return log ?? new MemoryDeliveryLog(queue.durable ? {} : { maxPending: Infinity });
}

/**
 * Resolves the publisher's own settings: for URLs that callers pass, and for settings that endpoints leave out.
 *
 * On a fault the values are placeholders, for further checks only.
 */
function resolveDefaults(
  publisher: WebhookPublisherOptions,
  signing: SigningResolver,
  faults: ConfigurationFaults,
): ResolvedEndpointSettings {
  const { hash, method, profile, timeout } = publisher;
  const paths = {
    issuer: 'issuer',
    lifetime: 'tokenLifetime',
    secret: 'secret',
    key: 'key',
    keys: 'keys',
  };
  const signer = signing.resolve(publisher, paths, faults);
  const fallback: ResolvedEndpointSettings = {
    // A missing signer is a fault, and with a fault the publisher does not start.
    signer: signer as EndpointSigner,
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
