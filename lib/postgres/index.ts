/** Durable deliveries and a shared replay store on PostgreSQL, also on an embedded one. */
export { PostgresQueue } from './postgres.queue.js';
export type { PostgresQueueOptions } from './postgres.queue.js';
export { PgliteQueue } from './pglite.queue.js';
export type { PgliteQueueOptions } from './pglite.queue.js';
export { PostgresEndpointStore } from './postgres-endpoint.store.js';
export type { PostgresEndpointStoreOptions } from './postgres-endpoint.store.js';
export { PostgresInboxStore } from './postgres-inbox.store.js';
export type { PostgresInboxStoreOptions } from './postgres-inbox.store.js';
export { PostgresReplayStore } from './postgres-replay.store.js';
export type { PostgresReplayStoreOptions } from './postgres-replay.store.js';
export type { PostgresClient, PostgresClientSource, PostgresPool } from './database.js';
