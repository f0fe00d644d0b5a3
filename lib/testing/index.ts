/** Help for the tests of applications, and the contracts that stores and queues must keep. */
export { signWebhook } from './sign-webhook.js';
export type { SignedTestWebhook, SignWebhookOptions } from './sign-webhook.js';
export { InMemoryWebhookTransport } from './in-memory-webhook.transport.js';
export type {
  SentWebhook,
  TransportAnswer,
  TransportResponder,
} from './in-memory-webhook.transport.js';
export { TestClock } from './test-clock.js';
export type { ContractCase } from './contract-case.interface.js';
export { deliveryLogContract } from './delivery-log.contract.js';
export type { DeliveryLogContractOptions } from './delivery-log.contract.js';
export { webhookQueueContract } from './webhook-queue.contract.js';
export type { WebhookQueueContractOptions } from './webhook-queue.contract.js';
export { endpointStoreContract } from './endpoint-store.contract.js';
export type { EndpointStoreContractOptions } from './endpoint-store.contract.js';
export { replayStoreContract } from './replay-store.contract.js';
export type { ContractTransaction, ReplayStoreContractOptions } from './replay-store.contract.js';
