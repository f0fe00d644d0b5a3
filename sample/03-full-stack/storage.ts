import {
  PgliteQueue,
  PostgresEndpointStore,
  PostgresInboxStore,
} from 'nestjs-webhook-token/postgres';

/** Everything that the shop keeps about webhooks, in one embedded database. */
export interface Storage {
  readonly queue: PgliteQueue;
  readonly endpointStore: PostgresEndpointStore;
  readonly inboxStore: PostgresInboxStore;
}

export async function openStorage(): Promise<Storage> {
  const { STORAGE_DIRECTORY: directory = 'build/03-full-stack' } = process.env;
  const queue = new PgliteQueue({ directory, pollInterval: '250ms' });
  const endpointStore = new PostgresEndpointStore(() => queue.database());
  // Creates the tables of all stores.
  await endpointStore.migrate();
  return {
    queue,
    endpointStore,
    inboxStore: new PostgresInboxStore(() => queue.database()),
  };
}
