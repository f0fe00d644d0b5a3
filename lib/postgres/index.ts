/** Durable deliveries and a shared replay store on PostgreSQL, also on an embedded one. */
export { PostgresQueue } from './postgres.queue.js';
export { PgliteQueue } from './pglite.queue.js';
export { PostgresEndpointStore } from './postgres-endpoint.store.js';
export { PostgresInboxStore } from './postgres-inbox.store.js';
export { PostgresReplayStore } from './postgres-replay.store.js';
export type { PostgresClient, PostgresPool } from './database.js';
