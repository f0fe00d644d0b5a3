// Replay
export { ReplayStore } from '../replay/replay-store.js';
export type { ReplayClaim, ReplayReservation, ReplayVerdict } from '../replay/replay-store.js';

// Queue
export {
  WebhookQueue,
  type DeliveryHandler,
  type EnqueuedDelivery,
  type DeliveryCountFilter,
  type DeliveryCounts,
  type DeliveryFilter,
  type DeliveryPageRequest,
  type ListedDelivery,
} from '../queue/webhook-queue.js';
export type {
  DeliveryOutcome,
  DeliveryRun,
  DeliveryAttempt,
  DeliveryFacts,
  DeliveryKeyState,
  DeliveryLimits,
  DeliveryRecord,
  DeliveryState,
  DeliveryStatus,
  WebhookDelivery,
  OutgoingDelivery,
  ReceivedDelivery,
  FailureReason,
} from '../queue/webhook-delivery.js';

// Endpoint store
export { EndpointStore } from '../endpoints/endpoint-store.js';
export { ActivityStore } from '../endpoints/activity-store.js';
export type {
  ActivityFilter,
  ActivityPageRequest,
  StoredActivity,
} from '../endpoints/activity-store.js';
export type { EndpointPageRequest, StoredEndpoint } from '../endpoints/endpoint-store.js';
export type { EndpointDisabledReason } from '../sending/endpoint.js';

// Inbox
export { InboxStore } from '../inbox/inbox-store.js';
export type {
  InboxBounds,
  InboxEntry,
  InboxFilter,
  InboxSettlement,
} from '../inbox/inbox-store.js';

// Keys and signatures
export { KeyProvider } from '../keys/key-provider.js';
export { WebhookSigner } from '../token/webhook-signer.js';

// Time
export { WebhookClock, SystemClock } from '../clock/webhook-clock.js';
