import type { Duration } from '../clock/duration.js';
import type { EgressOptions } from '../egress/egress-policy.js';
import type { EgressTlsOptions } from '../egress/guarded-agent.js';
import type { SigningKeyInput } from '../token/keys/signing-key.js';
import type { HashAlgorithm, WebhookProfile } from '../token/webhook-token.constants.js';
import type { EndpointStore } from '../endpoints/endpoint-store.js';
import type { DelivererOptions } from '../deliveries/webhook.deliverer.js';
import type {
  ResolvedEndpointOptions,
  WebhookEndpointOptions,
} from '../endpoints/endpoint-options.js';
import type { SenderOptions } from '../sending/webhook.sender.js';
import type { SealingKey } from '../endpoints/secret-sealer.js';
import type { SigningKeySource, ProvidedSigningKeys } from '../signing/provided-signing-keys.js';
import type { DeliveryLog } from '../deliveries/delivery-log.js';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import type { DeliveryMethod } from '../queue/webhook-delivery.interface.js';
import type { PublisherKeys } from '../signing/destination-signer.js';
import type { WebhookRetryOptions } from '../sending/retry-policy.js';
import type { ResolvedJwks, WebhookJwksOptions } from '../signing/jwks-options.js';

/** Injection token of the {@link ResolvedPublisherOptions}. */
export const PUBLISHER_OPTIONS = Symbol('nestjs-webhook-token/publisher-options');

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
