/** Durable deliveries and a shared replay store on PostgreSQL, also on an embedded one. */
export { PgBossDeliveryQueue } from './pg-boss-delivery.queue.js';
export type {
  PgBossDeliveryQueueOptions,
  PostgresPool,
} from './pg-boss-delivery-queue-options.interface.js';
export { EmbeddedDeliveryQueue } from './embedded-delivery.queue.js';
export type { EmbeddedDeliveryQueueOptions } from './embedded-delivery.queue.js';
export { JobDeliveryQueue } from './job-delivery.queue.js';
export type { JobDeliveryQueueOptions } from './job-delivery-queue-options.interface.js';
export { PostgresDeliveryLog } from './postgres-delivery.log.js';
export type { PostgresDeliveryLogOptions } from './postgres-delivery.log.js';
export { PostgresEndpointStore } from './postgres-endpoint.store.js';
export { PostgresReplayStore } from './postgres-replay.store.js';
export type { PostgresReplayStoreOptions } from './postgres-replay.store.js';
export type { PostgresClient, PostgresClientSource } from './postgres-client.interface.js';
export type { PostgresStoreOptions } from './postgres-store-options.interface.js';
