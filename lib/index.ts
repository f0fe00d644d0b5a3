// The module
export { WebhookModule } from './webhook.module.js';
export type {
  WebhookModuleExtras,
  WebhookModuleOptions,
  WebhookOptionsFactory,
} from './webhook-module-options.interface.js';

// Receiving
export { OnWebhookEvent } from './receiver/decorators/on-webhook-event.decorator.js';
export { WebhookRoute } from './receiver/decorators/webhook-route.decorator.js';
export { WebhookContext, WebhookData } from './receiver/decorators/webhook-data.decorator.js';
export type { WebhookDataOptions } from './receiver/decorators/webhook-data.decorator.js';
export type { StandardSchema } from './receiver/handlers/payload-validator.js';
export type {
  WebhookReceiverOptions,
  WebhookReplayOptions,
} from './receiver/receiver-options.interface.js';
export type { WebhookSpoolOptions } from './request/body-spool.js';
export { WEBHOOK_RECEIVED_CHANNEL } from './receiver/receiver.diagnostics.js';
export type { WebhookReceivedMessage } from './receiver/receiver.diagnostics.js';
export { WEBHOOK_ANSWERS } from './request/webhook-answers.js';
export type { WebhookAnswerCode, WebhookAnswerRow } from './request/webhook-answers.js';
export { WebhookDispatcher } from './receiver/handlers/webhook.dispatcher.js';
export { WebhookEvent } from './receiver/webhook-event.js';
export { WebhookException } from './receiver/answers/webhook.exception.js';
export { WebhookInbox } from './receiver/queued/webhook.inbox.js';
export { WebhookGuard } from './receiver/webhook.guard.js';
export { WebhookVerifier } from './receiver/webhook.verifier.js';
export type { WebhookRequestLike } from './request/incoming-webhook.js';

// Explaining
export type {
  ExplanationHint,
  ExplanationHintCode,
  ExplanationStep,
  ExplanationStepName,
  WebhookExplanation,
} from './explain/webhook-explanation.interface.js';
export { compareReceipts } from './token/webhook-receipt.js';
export type { ReceiptDifference } from './token/webhook-receipt.js';
export type { ReceivedReceipt, WebhookReceipt } from './token/webhook-receipt.js';

// Keys
export { KeyProvider } from './keys/key-provider.js';
export type { JwksFetchOptions } from './keys/jwks-options.js';
export type { WebhookIssuer } from './keys/webhook-issuer.interface.js';

// Replay
export { MemoryReplayStore } from './replay/memory-replay.store.js';
export type { MaybePromise } from './token/maybe-promise.js';
export { ReplayStore } from './replay/replay-store.js';
export type { ReplayClaim, ReplayReservation, ReplayVerdict } from './replay/replay-store.js';

// Publishing
export type { AttemptResult, UnsuccessfulAttempt } from './sending/attempt-result.js';
export type { RetryScheduleOptions } from './queue/retry-schedule.js';
export type { FailureReason } from './queue/failure-reason.js';
export { WebhookQueue } from './queue/webhook-queue.js';
export type {
  DeadDelivery,
  DeliveryHandler,
  DeliveryOutcome,
  DeliveryReceipt,
  EnqueuedDelivery,
  EnqueueOptions,
  KnownDelivery,
} from './queue/webhook-queue.js';
export { DeliveryLog } from './deliveries/delivery-log.js';
export type {
  DeliveryChange,
  DeliveryCounts,
  DeliveryFilter,
  DeliveryPageRequest,
  DeliveryStatus,
  LoggedAttempt,
  LoggedDelivery,
} from './deliveries/delivery-log.js';
export { MemoryDeliveryLog } from './deliveries/memory-delivery.log.js';
export type { MemoryDeliveryLogOptions } from './deliveries/memory-delivery.log.js';
export { WebhookDeliveries } from './deliveries/webhook.deliveries.js';
export type {
  DeliveryPageOptions,
  DeliveryStanding,
  EndpointStanding,
  NotRedeliveredReason,
  RedeliveredDelivery,
  RedeliverOptions,
  RedeliverResult,
  WebhookAttemptView,
  WebhookDeliveryDetails,
  WebhookDeliveryFilter,
  WebhookDeliveryPage,
  WebhookDeliveryPayload,
  WebhookDeliveryScope,
  WebhookDeliveryStats,
  WebhookDeliveryView,
} from './deliveries/webhook-deliveries.interface.js';
export { InProcessQueue } from './queue/in-process.queue.js';
export type { InProcessQueueOptions } from './queue/in-process.queue.js';
export type {
  PublishOptions,
  PublishResult,
  SendResult,
  SignedWebhookRequest,
} from './publisher/publish-options.js';
export type { WebhookPublisherOptions } from './publisher/publisher-options.interface.js';
export type {
  DeliveryMethod,
  DeliveryPayload,
  ReceivedEvent,
  WebhookDelivery,
} from './queue/webhook-delivery.interface.js';
export { OnWebhookDelivery } from './deliveries/on-webhook-delivery.decorator.js';
export { WebhookDeliveryEvents } from './deliveries/webhook-delivery.events.js';
export type {
  WebhookDeliveryEvent,
  WebhookDeliveryEventType,
} from './deliveries/webhook-delivery.events.js';
export { WebhookJwks } from './signing/webhook.jwks.js';
export type { WebhookKeySet } from './signing/webhook.jwks.js';
export { WebhookPublisher } from './publisher/webhook.publisher.js';
export { WebhookErrorFilter } from './publisher/webhook-error.filter.js';

// Endpoints that are managed while the application runs
export { EndpointStore } from './endpoints/endpoint-store.js';
export type {
  EndpointPageRequest,
  SealedEndpointKey,
  StoredEndpoint,
  StoredEndpointSettings,
} from './endpoints/endpoint-store.js';
export { MemoryEndpointStore } from './endpoints/memory-endpoint.store.js';
export type { SealingKey } from './endpoints/secret-sealer.js';
export { WebhookEndpoints } from './endpoints/webhook.endpoints.js';
export type { EndpointScope } from './endpoints/endpoint.editor.js';
export type {
  CreatedEndpoint,
  EndpointChanges,
  EndpointKeyView,
  EndpointListRequest,
  EndpointPage,
  EndpointSettings,
  EndpointTestResult,
  KeyRotationOptions,
  NewEndpoint,
  RotatedKey,
  WebhookEndpointView,
} from './endpoints/webhook-endpoint.interface.js';

// Typed events: `export *`, because only that lets an application merge its own into the interface
export * from './token/webhook-event-map.js';

// Time
export { WebhookClock } from './clock/webhook-clock.js';
export type { CancelWake } from './clock/webhook-clock.js';
export { SystemClock } from './clock/webhook-clock.js';
export type { Duration } from './clock/duration.js';

// Tokens, as the types of what the above hands out; to sign and verify: './token'
export type { KeyInput, KeyMaterial, WebhookKey } from './token/keys/key-material.js';
export type { PublicJwk } from './token/keys/public-jwk.js';
export type { SigningKeyInput } from './token/keys/signing-key.js';
export { WebhookSigner } from './token/webhook-signer.js';
export type { WebhookClaim, WebhookTokenClaims } from './token/webhook-claims.interface.js';
export type {
  HashAlgorithm,
  SignatureAlgorithm,
  WebhookProfile,
} from './token/webhook-token.constants.js';

// Errors
export { isWebhookError, WebhookError } from './errors/webhook.error.js';
export type { WebhookErrorJson } from './errors/webhook.error.js';
export { WebhookConfigurationError } from './errors/webhook.error.js';
export type { ConfigurationFault } from './errors/webhook.error.js';
export { WebhookDeliveryError } from './errors/webhook.error.js';
export type { WebhookDeliveryErrorCode } from './errors/webhook.error.js';
export { WebhookDestinationBlockedError } from './errors/webhook.error.js';
export { WebhookPayloadError } from './errors/webhook.error.js';
export type { WebhookPayloadErrorCode } from './errors/webhook.error.js';
export { WebhookReplayError } from './errors/webhook.error.js';
export type { WebhookReplayErrorCode } from './errors/webhook.error.js';
export { WebhookSigningError } from './errors/webhook.error.js';
export type { WebhookSigningErrorCode } from './errors/webhook.error.js';
export { WebhookStoreError } from './errors/webhook.error.js';
export type { WebhookStoreErrorCode } from './errors/webhook.error.js';
export { WebhookTokenError } from './errors/webhook.error.js';
export type { WebhookTokenErrorCode } from './errors/webhook.error.js';
export type { TokenIdScope } from './sending/destination.js';
export type { WebhookEndpointOptions } from './endpoints/endpoint-options.js';
export type { PublisherKeys } from './signing/destination-signer.js';
export type { WebhookRetryOptions } from './sending/retry-policy.js';
export type { WebhookJwksOptions } from './signing/jwks-options.js';
export type { EndpointDisabledReason } from './sending/delivery-target.js';
export type { SignOptions } from './sending/event-draft.js';
