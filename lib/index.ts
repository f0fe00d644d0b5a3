// The module
export { WebhookModule } from './webhook.module.js';
export type {
  WebhookModuleOptions,
  WebhookOptionsFactory,
} from './webhook-module-options.interface.js';

// The events of the application
export { defineEvents } from './events/event-catalog.js';
export type {
  InferEvents,
  WebhookEventCatalog,
  WebhookEventDefinition,
} from './events/event-catalog.js';

// Receiving
export { OnWebhookEvent } from './receiver/decorators/on-webhook-event.decorator.js';
export { WebhookRoute } from './receiver/decorators/webhook-route.decorator.js';
export { WebhookData, WebhookContext } from './receiver/decorators/webhook-data.decorator.js';
export { WebhookEvent } from './receiver/webhook-event.js';
export { WebhookGuard } from './receiver/webhook.guard.js';
export { WebhookVerifier } from './receiver/webhook.verifier.js';
export type { WebhookRequestLike } from './request/request-like.js';
export { WebhookDispatcher } from './receiver/handlers/webhook.dispatcher.js';
export { WebhookInbox } from './receiver/inbox/webhook.inbox.js';
export type {
  WebhookInboxEntry,
  WebhookInboxFilter,
  DeadLetter,
  DeadLetterPage,
  WebhookInboxPage,
} from './receiver/inbox/webhook.inbox.js';
export { WebhookException } from './receiver/error-answers.js';
export type { WebhookReceiverOptions } from './receiver/receiver-options.js';
export type { WebhookIssuer } from './keys/issuer-list.js';

// Explaining
export type { WebhookExplanation } from './explain/webhook-explanation.interface.js';
export type { WebhookReceipt } from './token/webhook-receipt.js';
export { compareReceipts } from './token/webhook-receipt.js';

// Publishing
export { WebhookPublisher } from './publisher/webhook.publisher.js';
export { WebhookErrorFilter } from './publisher/webhook-error.filter.js';
export type { WebhookPublisherOptions } from './publisher/publisher-options.js';
export type { WebhookEndpointOptions } from './endpoints/endpoint-options.js';
export type { WebhookRetryOptions } from './sending/retry-policy.js';
export type {
  PublishOptions,
  PublishResult,
  SendResult,
  SignedWebhookRequest,
  WebhookEventToPublish,
} from './publisher/publish-options.js';
export { WebhookJwks } from './signing/webhook.jwks.js';
export type { WebhookKeySet } from './signing/webhook.jwks.js';

// Diagnostics channels
export type { WebhookChannelMessages } from './webhook-channels.interface.js';

// Deliveries
export { WebhookDeliveries } from './deliveries/webhook.deliveries.js';
export type {
  WebhookDeliveryView,
  WebhookDeliveryDetails,
  WebhookAttemptView,
  WebhookDeliveryPayload,
  WebhookDeliveryPage,
  WebhookDeliveryStats,
  ErasureResult,
} from './deliveries/delivery-view.js';
export type { WebhookDeliveryFilter } from './deliveries/delivery-query.js';
export type { RedeliverResult } from './deliveries/redelivery.js';
export {
  OnWebhookDelivery,
  WebhookDeliveryEvents,
  type WebhookDeliveryEvent,
} from './deliveries/webhook-delivery.events.js';

// Endpoints that are managed while the application runs
export { WebhookEndpoints } from './endpoints/webhook.endpoints.js';
export type {
  WebhookEndpointView,
  NewEndpoint,
  CreatedEndpoint,
  EndpointChanges,
  EndpointCircuitView,
  EndpointFormat,
  EndpointFormatPage,
  EndpointPage,
  EndpointTestResult,
  RotatedKey,
} from './endpoints/webhook-endpoint.interface.js';
export type { WebhookEndpointFilter } from './endpoints/endpoint-filter.js';

// Keys that an application provides
export { KeyProvider } from './keys/key-provider.js';
export { WebhookSigner } from './token/webhook-signer.js';
export type { WebhookKey } from './token/keys/key-material.js';
export type { SigningKeyInput } from './token/keys/signing-key.js';

// Default stores and queue, in memory
export { MemoryReplayStore } from './replay/memory-replay.store.js';
export { InProcessQueue } from './queue/in-process.queue.js';
export { ShardedQueue } from './queue/sharded.queue.js';
export { MemoryInboxStore } from './inbox/memory-inbox.store.js';
export { MemoryEndpointStore } from './endpoints/memory-endpoint.store.js';

// Errors
export {
  isWebhookError,
  WebhookError,
  WebhookConfigurationError,
  WebhookDeliveryError,
  WebhookDestinationBlockedError,
  WebhookPayloadError,
  WebhookReplayError,
  WebhookSignatureError,
  WebhookSigningError,
  WebhookStoreError,
  WebhookTokenError,
} from './errors/webhook.error.js';
export type { ConfigurationProblem } from './errors/webhook.error.js';

// Durations
export type { Duration } from './clock/duration.js';

// Typed events: `export *`, because only that lets an application merge its own into the interface
export * from './token/webhook-event-map.js';
