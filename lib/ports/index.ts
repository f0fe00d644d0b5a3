// Replay
export { ReplayStore } from '../replay/replay-store.js';
export type { ReplayClaim, ReplayReservation, ReplayVerdict } from '../replay/replay-store.js';

// Queue
export {
  WebhookQueue,
  type DeliveryHandler,
  type EnqueuedDelivery,
  type EnqueueOptions,
  type DeliveryCountFilter,
  type DeliveryCounts,
  type DeliveryFacts,
  type DeliveryFilter,
  type DeliveryPageRequest,
  type ListedDelivery,
} from '../queue/webhook-queue.js';
export type {
  DeliveryOutcome,
  DeliveryRun,
  DeliveryAttempt,
  DeliveryKeyState,
  DeliveryLimits,
  DeliveryRecord,
  DeliveryState,
  DeliveryStatus,
  WebhookDelivery,
  OutgoingDelivery,
  ReceivedDelivery,
  DeliveryMethod,
  DeliveryPayload,
  ReceivedEvent,
  FailureReason,
  SignedFacts,
} from '../queue/webhook-delivery.js';

// Endpoint store
export { EndpointStore } from '../endpoints/endpoint-store.js';
export { ActivityStore } from '../endpoints/activity-store.js';
export type {
  ActivityFilter,
  ActivityOrigin,
  ActivityPageRequest,
  StoredActivity,
} from '../endpoints/activity-store.js';
export type { EndpointDisabledReason } from '../sending/endpoint.js';
export type {
  EndpointPageRequest,
  SealedEndpointKey,
  StoredEndpoint,
  StoredEndpointSettings,
} from '../endpoints/endpoint-store.js';
export type { StoredCredentials } from '../endpoints/stored-credentials.js';

// Inbox
export { InboxStore } from '../inbox/inbox-store.js';
export type {
  InboxBounds,
  InboxContent,
  InboxEntry,
  InboxFilter,
  InboxOutcome,
  InboxSettlement,
} from '../inbox/inbox-store.js';

// Keys and signatures
export { KeyProvider } from '../keys/key-provider.js';
export type { WebhookIssuer } from '../keys/issuer-list.js';
export type { WebhookKey } from '../token/keys/key-material.js';
export type { SigningKeyInput } from '../token/keys/signing-key.js';
export { WebhookSigner } from '../token/webhook-signer.js';
export type { SignatureAlgorithm } from '../token/webhook-token.constants.js';

// Time
export { WebhookClock, SystemClock } from '../clock/webhook-clock.js';
export type { CancelWake } from '../clock/webhook-clock.js';
