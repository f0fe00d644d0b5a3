/** Help for the tests of applications, and the contracts that stores and queues must keep. */
export { deliverWebhook } from './deliver-webhook.js';
export type { DeliveredWebhook, DeliverWebhookOptions } from './deliver-webhook.js';
export { signWebhook } from './sign-webhook.js';
export type { SignedTestWebhook, SignWebhookOptions } from './sign-webhook.js';
export { expectCompatible, recordEvents } from './expect-compatible.js';
export type { RecordedEvent } from './expect-compatible.js';
export { expectIdempotent } from './expect-idempotent.js';
export type { ExpectIdempotentOptions } from './expect-idempotent.js';
export { flushDeliveries } from './flush-deliveries.js';
export type { AttemptedDelivery } from './flush-deliveries.js';
export { IdempotencyError } from './idempotency.error.js';
export type { IdempotencyFailure } from './idempotency.error.js';
export { overrideWebhooks } from './override-webhooks.js';
export { InMemoryWebhookTransport } from './in-memory-webhook.transport.js';
export type {
  NetworkFailure,
  SentWebhook,
  TransportAnswer,
  TransportReply,
} from './in-memory-webhook.transport.js';
export { simulateWebhooks, SimulationError } from './simulate-webhooks.js';
export type {
  SimulatedApplication,
  SimulatedDelivery,
  SimulateWebhooksOptions,
  SimulationReport,
} from './simulate-webhooks.js';
export { TestClock } from './test-clock.js';
export type { ContractCase } from './contract-case.interface.js';
export { webhookQueueContract } from './webhook-queue.contract.js';
export { endpointStoreContract } from './endpoint-store.contract.js';
export { inboxStoreContract } from './inbox-store.contract.js';
export { replayStoreContract } from './replay-store.contract.js';
export type { ContractTransaction } from './replay-store.contract.js';
