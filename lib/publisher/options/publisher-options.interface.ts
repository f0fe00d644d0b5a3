import type { Duration } from '../../clock/duration.js';
import type { WebhookClock } from '../../clock/webhook-clock.js';
import type { EgressOptions, EgressPolicy } from '../../egress/egress-policy.js';
import type { EgressTlsOptions } from '../../egress/guarded-agent.js';
import type { KeyProvider } from '../../keys/key-provider.js';
import type { SigningKeyInput } from '../../token/keys/signing-key.js';
import type { TokenSigner } from '../../token/token-signer.js';
import type {
  HashAlgorithm,
  SignatureAlgorithm,
  WebhookProfile,
} from '../../token/webhook-token.constants.js';
import type { UnsuccessfulAttempt } from '../../sending/attempt-result.js';
import type { EndpointStore } from '../../endpoints/endpoint-store.js';
import type { ResolvedEndpointStore } from '../../endpoints/endpoint-store-options.resolver.js';
import type { SealingKey } from '../../endpoints/secret-sealer.js';
import type { ResolvedJwks, WebhookJwksOptions } from '../../signing/jwks-options.interface.js';
import type { SigningKeySource, ProvidedSigningKeys } from '../../signing/provided-signing-keys.js';
import type { DeliveryLog } from '../../deliveries/delivery-log.js';
import type { WebhookQueue } from '../../queue/webhook-queue.js';
import type { RetryPolicy } from '../../sending/retry-policy.js';
import type { RetryScheduleOptions } from '../../queue/retry-schedule.js';
import type { DeliveryMethod } from '../../queue/webhook-delivery.interface.js';

/** Which `jti` the attempts of one delivery carry. */
export type TokenIdScope = 'attempt' | 'delivery';

/** Keys to sign with in turn, or where they are loaded from. */
export type PublisherKeys = readonly SigningKeyInput[] | KeyProvider<readonly SigningKeyInput[]>;

/** What a destination needs of a signer. */
export interface DestinationSigner extends Pick<TokenSigner, 'inlineLimit' | 'sign'> {
  /** Of the keys it may sign with, as far as they are known: a provider is asked later. */
  readonly algorithms: readonly SignatureAlgorithm[];
}

/** Where events are sent, and which. */
export interface WebhookEndpointOptions {
  /** Names the endpoint in results, logs and queues; 1 to 255 characters, unique. */
  readonly id: string;
  /** `https:`, without user name and password. */
  readonly url: string;
  /** Names or patterns of the events sent here: `order.*`, `refund.**`; default `['**']`, every event. */
  readonly events?: readonly string[] | undefined;
  /** The secret shared with this endpoint; default the publisher's. */
  readonly secret?: string | undefined;
  /** A key with its algorithm, or a signer, in place of `secret`. */
  readonly key?: SigningKeyInput | undefined;
  /** Keys that replace each other, as {@link WebhookPublisherOptions.keys}, in place of `secret`. */
  readonly keys?: PublisherKeys | undefined;
  /** The `iss` of its tokens; default the publisher's. */
  readonly issuer?: string | undefined;
  /** The `aud` of its tokens. */
  readonly audience?: string | readonly string[] | undefined;
  /** The `sub` of its tokens. */
  readonly subject?: string | undefined;
  /** Headers of every request; none that frame or authenticate it. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Default the publisher's. */
  readonly method?: DeliveryMethod | undefined;
  /** Gets the events published for this tenant and no others; default: the events published for none. */
  readonly tenant?: string | undefined;
  /** For one attempt, at most 15 minutes; default the publisher's. */
  readonly timeout?: Duration | undefined;
  /** Digest of a POST's body; default the publisher's. */
  readonly hash?: HashAlgorithm | undefined;
  /** The wire format it is sent; default the publisher's. */
  readonly profile?: WebhookProfile | undefined;
  /**
   * Default `'attempt'`: a fresh `jti` for every attempt, since receivers burn one before they process the
   * event. `'delivery'` keeps it, for receivers that tell duplicates by it.
   */
  readonly jti?: TokenIdScope | undefined;
  /** Gets nothing; default `false`. */
  readonly disabled?: boolean | undefined;
}

/**
 * How often and when a failed delivery is attempted again: by default 10 attempts, after 0, 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h,
 * 20 h, 24 h.
 */
export interface WebhookRetryOptions extends RetryScheduleOptions {
  /**
   * Answers `false` to give a delivery up early. It must answer synchronously: should it throw or give a promise,
   * the delivery is retried, since a fault in here must not lose an event.
   */
  readonly retryIf?: ((result: UnsuccessfulAttempt) => boolean) | undefined;
}

/** The publishing half of the module's options. */
export interface WebhookPublisherOptions extends EgressOptions {
  /** The `iss` of every token: who sends. 1 to 255 characters, by custom an https URL. */
  readonly issuer: string;
  /** The default key: a shared secret of at least 32 bytes (HS256). */
  readonly secret?: string | undefined;
  /** A key with its algorithm, or a {@link WebhookSigner} that holds one elsewhere, in place of `secret`. */
  readonly key?: SigningKeyInput | undefined;
  /**
   * Keys that replace each other, in place of `secret`. Each signing takes the newest that may be used: of those
   * whose `notBefore` has come and whose `notAfter` has not, the one whose `notBefore` came last; of two alike, the
   * later in the list. A provider is asked for the list at start-up, and again when its ttl is over.
   */
  readonly keys?: PublisherKeys | undefined;
  /**
   * Serves the public halves of the publisher's keys, so that receivers need no secret: `true` for
   * `/.well-known/webhook-keys`. Default: not served.
   */
  readonly jwks?: boolean | WebhookJwksOptions | undefined;
  /** Seconds from `iat` to `exp`; default 300. */
  readonly tokenLifetime?: number | undefined;
  /** Digest of a POST's body; default `sha256`, and `sha3-256` for `swt-draft-00`. */
  readonly hash?: HashAlgorithm | undefined;
  /** The wire format of its events: `'webhook-token'` (default), `'swt-draft-00'` or `'swt-draft-02'`. */
  readonly profile?: WebhookProfile | undefined;
  /** Default `auto`: HEAD with inline data where it fits, else POST. */
  readonly method?: DeliveryMethod | undefined;
  /** Bytes of a HEAD request's whole head; above it POST is used. Default 7168. */
  readonly maxHeadBytes?: number | undefined;
  /** Endpoints that change with the configuration only; those of the {@link endpointStore} come and go at run time. */
  readonly endpoints?: readonly WebhookEndpointOptions[] | undefined;
  /** Where {@link WebhookEndpoints} keeps its endpoints; default a {@link MemoryEndpointStore}. */
  readonly endpointStore?: EndpointStore | undefined;
  /**
   * Seal the secrets of endpoints before they are stored: the first seals, all of them open. Required with a store that
   * is durable; default a random one of this process.
   */
  readonly sealingKeys?: readonly SealingKey[] | undefined;
  /** For DNS, connection, TLS, request and answer of one attempt; at most 15 minutes, default `'15s'`. */
  readonly timeout?: Duration | undefined;
  readonly retry?: WebhookRetryOptions | undefined;
  /** How long an endpoint may fail every attempt before it is disabled; default `'5d'`. */
  readonly disableAfter?: Duration | undefined;
  /**
   * By what HttpService sends: `'auto'` (default) takes undici, version 7 or later, where the application has it installed,
   * and otherwise axios's own adapter, as `'axios'` does. An adapter that the application has set is left alone.
   */
  readonly transport?: 'auto' | 'axios' | undefined;
  /** Default an {@link InProcessQueue}; in production it must be chosen explicitly. */
  readonly queue?: WebhookQueue | undefined;
  /**
   * Whose transactions `publish` joins without `tx`, where the application has `@nestjs-cls/transactional` and the queue is
   * transactional: the `connectionName` of a `ClsPluginTransactional`. Default: the plugin without a name, or the only one.
   * `false`: nobody's.
   */
  readonly transactionHost?: string | false | undefined;
  /**
   * Remembers deliveries and their attempts for {@link WebhookDeliveries}; default a {@link MemoryDeliveryLog}, which forgets them
   * when the process ends. `false` remembers nothing.
   */
  readonly deliveryLog?: DeliveryLog | false | undefined;
  /** Authorities to trust and a certificate to show, as node:tls takes them; default: those of Node. */
  readonly tls?: EgressTlsOptions | undefined;
  /** How long a shutdown waits for deliveries; default `'10s'`. */
  readonly shutdownTimeout?: Duration | undefined;
}

/** How a destination is spoken to; durations in milliseconds. */
export interface ResolvedDestination {
  readonly signer: DestinationSigner;
  /** Absent, the wire format's own default. */
  readonly hash?: HashAlgorithm;
  readonly profile: WebhookProfile;
  readonly method: DeliveryMethod;
  readonly timeout: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly audience?: string | readonly string[];
  readonly subject?: string;
  readonly jti: TokenIdScope;
}

/** A configured endpoint, checked. */
export interface ResolvedEndpoint extends ResolvedDestination {
  readonly id: string;
  readonly url: string;
  readonly events: readonly string[];
  readonly tenant?: string;
  readonly disabled: boolean;
}

/** The publisher's options, checked and filled; durations in milliseconds. */
export interface ResolvedPublisherOptions extends ResolvedEndpointStore {
  readonly issuer: string;
  /** Seconds; absent, the default. */
  readonly tokenLifetime: number | undefined;
  readonly endpoints: readonly ResolvedEndpoint[];
  /** For destinations the caller names by URL. */
  readonly defaults: ResolvedDestination;
  /** Keys that are loaded before anything is published. */
  readonly provided: readonly ProvidedSigningKeys[];
  /** The keys of the publisher's own issuer: its default ones, and those of endpoints. */
  readonly ownKeys: readonly SigningKeySource[];
  /** Absent where no JWKS is served. */
  readonly jwks: ResolvedJwks | undefined;
  readonly maxHeadBytes: number;
  readonly retry: RetryPolicy;
  readonly disableAfter: number;
  readonly queue: WebhookQueue;
  readonly transactionHost: string | false | undefined;
  /** Absent where nothing is remembered. */
  readonly deliveryLog: DeliveryLog | undefined;
  readonly egress: EgressPolicy;
  readonly tls: EgressTlsOptions | undefined;
  readonly transport: 'auto' | 'axios';
  readonly clock: WebhookClock;
  readonly shutdownTimeout: number;
}
