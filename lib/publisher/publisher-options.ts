import type { Duration } from '../clock/duration.js';
import type { EgressOptions } from '../egress/egress-policy.js';
import type { EgressTlsOptions } from '../egress/guarded-agent.js';
import type { SigningKeyInput } from '../token/keys/signing-key.js';
import type { HashAlgorithm, SentProfile } from '../token/webhook-token.constants.js';
import type { EndpointStore } from '../endpoints/endpoint-store.js';
import type { EndpointLimits } from '../endpoints/endpoint-limits.js';
import type { WebhookEndpointOptions } from '../endpoints/endpoint-options.js';
import type { SealingKey } from '../endpoints/secret-sealer.js';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import type { DeliveryMethod } from '../queue/webhook-delivery.js';
import type { PublisherKeys } from '../signing/endpoint-signer.js';
import type { WebhookRetryOptions } from '../sending/retry-policy.js';
import type { StandardWebhooksSigningOptions } from '../signing/standard-webhooks-signer.js';
import type { WebhookJwksOptions } from '../signing/jwks.route.js';

/** The publishing half of the module's options. */
export interface WebhookPublisherOptions extends EgressOptions {
  /** The `iss` of every token, which names the sender: 1 to 255 characters, usually an https URL. */
  readonly issuer: string;
  /** The default key: a shared secret of at least 32 bytes (HS256). */
  readonly secret?: string | undefined;
  /** A key with its algorithm, or a {@link WebhookSigner} that holds one elsewhere, in place of `secret`. */
  readonly key?: SigningKeyInput | undefined;
  /**
   * Rotating keys, in place of `secret`. Each token is signed with the newest valid key: of those between their
   * `notBefore` and `notAfter`, the one with the latest `notBefore`; of two alike, the later in the list. A provider
   * loads the list at start-up, and again when its ttl is over.
   */
  readonly keys?: PublisherKeys | undefined;
  /**
   * Serves the public halves of the publisher's keys, so that receivers need no secret: `true` for
   * `/.well-known/webhook-keys`. Default: not served.
   */
  readonly jwks?: boolean | WebhookJwksOptions | undefined;
  /** Time from `iat` to `exp`: seconds, or a string such as `'5m'`; default 300. */
  readonly tokenLifetime?: Duration | undefined;
  /** Digest of a POST's body; default `sha256`, and `sha3-256` for `swt-draft-00`. */
  readonly hash?: HashAlgorithm | undefined;
  /**
   * The wire format of its events: `'webhook-token'` (default), `'standard-webhooks'`, both in one request as
   * `['webhook-token', 'standard-webhooks']`, `'swt-draft-00'` or `'swt-draft-02'`.
   */
  readonly profile?: SentProfile | undefined;
  /** The secret of Standard Webhooks of endpoints that have none of their own; default: `secret`, if `profile` has Standard Webhooks. */
  readonly standardWebhooks?: StandardWebhooksSigningOptions | undefined;
  /** With the signature of Standard Webhooks: whether the body is `{ type, timestamp, data }` (default), or the data alone. */
  readonly envelope?: boolean | undefined;
  /** Default `auto`: HEAD with inline data where it fits, else POST. */
  readonly method?: DeliveryMethod | undefined;
  /** The largest head of a HEAD request, in bytes; larger ones are sent by POST. Default 7168. */
  readonly maxHeadBytes?: number | undefined;
  /** Endpoints that change with the configuration only. Those of the {@link endpointStore} are managed at run time. */
  readonly endpoints?: readonly WebhookEndpointOptions[] | undefined;
  /** Stores the endpoints of {@link WebhookEndpoints}; default a {@link MemoryEndpointStore}. */
  readonly endpointStore?: EndpointStore | undefined;
  /** Limits of managed endpoints by tenant and by endpoint. */
  readonly endpointLimits?: EndpointLimits | undefined;
  /**
   * Encrypt the secrets of endpoints in the store: the first key encrypts, all of them decrypt. Required with a durable
   * store; default a random key of this process.
   */
  readonly sealingKeys?: readonly SealingKey[] | undefined;
  /** The time for DNS, connection, TLS, request and answer of one attempt; at most 15 minutes, default `'15s'`. */
  readonly timeout?: Duration | undefined;
  readonly retry?: WebhookRetryOptions | undefined;
  /** An endpoint that fails every attempt for this long is disabled; default `'5d'`. */
  readonly disableAfter?: Duration | undefined;
  /** Stores the deliveries and their attempts; default an {@link InProcessQueue}. Required in production. */
  readonly queue?: WebhookQueue | undefined;
  /**
   * Whose transactions `publish` joins without `tx`, if the application uses `@nestjs-cls/transactional` and the queue is
   * transactional: the `connectionName` of a `ClsPluginTransactional`. Default: the plugin without a name, or the only one.
   * `false`: none.
   */
  readonly transactionHost?: string | false | undefined;
  /** Trusted authorities, which replace those of Node, and a client certificate, as in node:tls. */
  readonly tls?: EgressTlsOptions | undefined;
  /**
   * An HTTP proxy that opens every connection, such as `'http://user:password@proxy.internal:3128'`. Names are resolved and
   * checked here, and the proxy is asked to CONNECT to the address. Its own address is trusted. Default: none; the proxies of
   * the environment are ignored.
   */
  readonly proxy?: string | undefined;
  /** How long a shutdown waits for deliveries; default `'10s'`. */
  readonly shutdownTimeout?: Duration | undefined;
}
