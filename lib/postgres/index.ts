/** Durable deliveries and a shared replay store on PostgreSQL, also on an embedded one. */
export { PgBossQueue } from './pg-boss.queue.js';
export type { PgBossQueueOptions, PostgresPool } from './pg-boss.queue.js';
export { PgliteQueue } from './pglite.queue.js';
export type { PgliteQueueOptions } from './pglite.queue.js';
export { JobQueue } from './job.queue.js';
export type { JobQueueOptions } from './job-queue-options.js';
export { PostgresDeliveryLog } from './postgres-delivery.log.js';
export type { PostgresDeliveryLogOptions } from './postgres-delivery.log.js';
export { PostgresEndpointStore } from './postgres-endpoint.store.js';
export type { PostgresEndpointStoreOptions } from './postgres-endpoint.store.js';
export { PostgresInboxStore } from './postgres-inbox.store.js';
export type { PostgresInboxStoreOptions } from './postgres-inbox.store.js';
export { PostgresReplayStore } from './postgres-replay.store.js';
export type { PostgresReplayStoreOptions } from './postgres-replay.store.js';
export type { PostgresClient, PostgresClientSource } from './store-connection.js';
export type { PostgresStoreOptions } from './store-connection.js';
