import type { FactoryProvider, InjectionToken, Provider, Type } from '@nestjs/common';
import type { HttpService } from '@nestjs/axios';
import { DiscoveryService, HttpAdapterHost, MetadataScanner, ModulesContainer } from '@nestjs/core';
import { SystemClock } from '../clock/webhook-clock.js';
import { WebhookQueue } from '../queue/webhook-queue.js';
import { DeliveryReporter } from '../deliveries/delivery.reporter.js';
import { WebhookDeliveries } from '../deliveries/webhook.deliveries.js';
import { JwksRoute } from '../signing/jwks.route.js';
import { WebhookJwks } from '../signing/webhook.jwks.js';
import { PublishTransaction } from './publish-transaction.js';
import { WebhookEndpoints } from '../endpoints/webhook.endpoints.js';
import { EndpointRegistry } from '../endpoints/endpoint.registry.js';
import {
  loadSigningKeys,
  type ResolvedPublisherOptions,
  PUBLISHER_OPTIONS,
} from './publisher-options.resolver.js';
import {
  DeliveryReactionExplorer,
  WebhookDeliveryEvents,
} from '../deliveries/webhook-delivery.events.js';
import { WebhookDeliverer } from '../deliveries/webhook.deliverer.js';
import { WebhookPublisher } from './webhook.publisher.js';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import { requireHttp, WEBHOOK_HTTP } from './webhook-http.js';
import { OAuthTokens } from '../sending/oauth-tokens.js';
import { WebhookSender } from '../sending/webhook.sender.js';

/** Injection token of what is there once the keys are. */
const SIGNING_KEYS = Symbol('nestjs-webhook-token/signing-keys');

/** Methods that Nest calls. */
const LIFECYCLE_HOOK = /^(?:on|before)[A-Z]/;

/** Replaces a service of a module without `publisher` options: every method rejects, so that no event is lost silently. */
function unconfigured(service: Type): Readonly<Record<string, () => Promise<never>>> {
  const reject = async (): Promise<never> => {
    throw new WebhookConfigurationError([
      {
        path: 'publisher',
        message:
          'is not configured, so nothing is sent: add "publisher" to the options of WebhookModule. ' +
          'If another WebhookModule has it, merge both, or import that one first',
      },
    ]);
  };
  return Object.fromEntries(
    Object.getOwnPropertyNames(service.prototype)
      .filter((name) => name !== 'constructor' && !LIFECYCLE_HOOK.test(name))
      .map((name) => [name, reject]),
  );
}

/**
 * The publisher and what it is made of. The module provides {@link PUBLISHER_OPTIONS}, which are
 * `undefined` where nothing is published, and {@link WEBHOOK_HTTP}.
 */
export const PUBLISHER_PROVIDERS: readonly Provider[] = [
  whenConfigured(SIGNING_KEYS, loadSigningKeys),
  whenConfigured(WebhookQueue, (options) => options.queue),
  whenConfigured(EndpointRegistry, (options) => new EndpointRegistry(options)),
  whenConfigured(OAuthTokens, (options) => new OAuthTokens(options)),
  whenConfigured(
    WebhookSender,
    (options, http: HttpService | WebhookConfigurationError | undefined, tokens: OAuthTokens) =>
      new WebhookSender(options, requireHttp(http), tokens),
    [WEBHOOK_HTTP, OAuthTokens],
  ),
  whenConfigured(
    WebhookDeliverer,
    (
      options,
      queue: WebhookQueue,
      endpoints: EndpointRegistry,
      sender: WebhookSender,
      events: WebhookDeliveryEvents,
    ) =>
      new WebhookDeliverer(
        options,
        queue,
        endpoints,
        sender,
        new DeliveryReporter(events, options),
      ),
    [WebhookQueue, EndpointRegistry, WebhookSender, WebhookDeliveryEvents],
  ),
  whenConfigured(
    PublishTransaction,
    (options, discovery: DiscoveryService, modules: ModulesContainer) =>
      new PublishTransaction(options, discovery, modules),
    [DiscoveryService, ModulesContainer],
  ),
  // Also without a publisher: an application may subscribe although only some deployments publish.
  { provide: WebhookDeliveryEvents, useFactory: () => new WebhookDeliveryEvents() },
  {
    provide: DeliveryReactionExplorer,
    useFactory: (
      options: ResolvedPublisherOptions | undefined,
      discovery: DiscoveryService,
      scanner: MetadataScanner,
      events: WebhookDeliveryEvents,
    ) =>
      new DeliveryReactionExplorer(discovery, scanner, events, {
        clock: options?.clock ?? new SystemClock(),
        shutdownTimeout: options?.shutdownTimeout ?? 0,
        publishes: options !== undefined,
      }),
    inject: [PUBLISHER_OPTIONS, DiscoveryService, MetadataScanner, WebhookDeliveryEvents],
  },
  whenConfigured(
    WebhookPublisher,
    (
      options,
      endpoints: EndpointRegistry,
      queue: WebhookQueue,
      deliverer: WebhookDeliverer,
      sender: WebhookSender,
      transaction: PublishTransaction,
    ) => new WebhookPublisher(options, endpoints, queue, deliverer, sender, transaction),
    [
      EndpointRegistry,
      WebhookQueue,
      WebhookDeliverer,
      WebhookSender,
      PublishTransaction,
      // Not used, but awaited: nothing is published before the keys are loaded.
      SIGNING_KEYS,
    ],
    unconfigured(WebhookPublisher),
  ),
  whenConfigured(
    WebhookEndpoints,
    (options, endpoints: EndpointRegistry, sender: WebhookSender, queue: WebhookQueue) =>
      new WebhookEndpoints(options, endpoints, sender, queue),
    // The keys are awaited: an endpoint may be tested as soon as it is created.
    [EndpointRegistry, WebhookSender, WebhookQueue, SIGNING_KEYS],
    unconfigured(WebhookEndpoints),
  ),
  whenConfigured(
    WebhookDeliveries,
    ({ clock, endpointLimits }, queue: WebhookQueue) =>
      new WebhookDeliveries(queue, clock, endpointLimits.redeliveriesPerMinute),
    [WebhookQueue],
    unconfigured(WebhookDeliveries),
  ),
  {
    provide: WebhookJwks,
    useFactory: (options: ResolvedPublisherOptions | undefined) =>
      new WebhookJwks(options?.ownKeys ?? [], options?.clock ?? new SystemClock()),
    inject: [PUBLISHER_OPTIONS, SIGNING_KEYS],
  },
  whenConfigured(
    JwksRoute,
    ({ jwks }, keys: WebhookJwks, adapterHost: HttpAdapterHost) =>
      jwks && new JwksRoute(jwks, keys, adapterHost),
    [WebhookJwks, HttpAdapterHost],
  ),
];

/** What applications inject: the publisher, its endpoints and deliveries, the queue that holds them, what happens, and the public keys. */
export const PUBLISHER_EXPORTS = [
  WebhookPublisher,
  WebhookEndpoints,
  WebhookDeliveries,
  WebhookQueue,
  WebhookDeliveryEvents,
  WebhookJwks,
] as const;

/** Provides something else, by default nothing, without a publisher, which is known once the options are resolved. */
function whenConfigured<Dependencies extends unknown[]>(
  provide: InjectionToken,
  create: (options: ResolvedPublisherOptions, ...dependencies: Dependencies) => unknown,
  inject: InjectionToken[] = [],
  otherwise?: unknown,
): FactoryProvider {
  return {
    provide,
    useFactory: (options: ResolvedPublisherOptions | undefined, ...dependencies: Dependencies) =>
      options === undefined ? otherwise : create(options, ...dependencies),
    inject: [PUBLISHER_OPTIONS, ...inject],
  };
}
