import {
  type ConnectionOptions,
  type Job,
  type Processor,
  Worker,
  type WorkerOptions,
} from 'bullmq';

/** Milliseconds. */
const PAUSE_AFTER_FAILED_FETCH = 1_000;

/**
 * A Worker that never spins. BullMQ fetches the next job as soon as a fetch has failed, unless the connection is known
 * to be closed; a Redis that is full, a replica or loading its data would keep the process busy with nothing else.
 */
export class DeliveryWorker<Data, Result> extends Worker<Data, Result> {
  private readonly releaseConnection: () => void;

  constructor(
    name: string,
    processor: Processor<Data, Result>,
    { connection, ...options }: WorkerOptions,
  ) {
    const own = workerConnection(connection);
    super(name, processor, { ...options, connection: own.connection });
    this.releaseConnection = own.release;
  }

  /** Closes it, and the connection that was made for it. */
  override async close(force?: boolean): Promise<void> {
    await super.close(force);
    this.releaseConnection();
  }

  protected override async moveToActive(token: string, name?: string): Promise<Job<Data, Result>> {
    try {
      return await super.moveToActive(token, name);
    } catch (error) {
      if (this.closing === undefined) await this.delay(PAUSE_AFTER_FAILED_FETCH);
      throw error;
    }
  }
}

interface OwnConnection {
  readonly connection: ConnectionOptions;
  /** Ends the client that was made here, if any. */
  readonly release: () => void;
}

/** The methods that clients of ioredis, of node-redis and of BullMQ's adapters have in common. */
interface Client {
  readonly isCluster?: boolean;
  duplicate(...options: unknown[]): Client;
  on(event: 'error', listener: () => void): unknown;
  disconnect?(): unknown;
  destroy?(): unknown;
}

/**
 * The Worker's own connection, which has an offline queue. Publishing should fail at once while Redis is away, so
 * applications turn the offline queue off; in a Worker, ioredis would then reject each fetch within the same turn of
 * the event loop, and BullMQ would fetch in an endless loop without a turn for timers, sockets or the reconnect.
 *
 * A client is duplicated, so that stopping the Worker never ends the application's own.
 */
export function workerConnection(connection: ConnectionOptions): OwnConnection {
  if (!isClient(connection)) {
    return { connection: { ...connection, enableOfflineQueue: true }, release: () => {} };
  }
  // Each client knows one of the two and ignores the other.
  const options = { enableOfflineQueue: true, disableOfflineQueue: false };
  const client =
    connection.isCluster === true
      ? connection.duplicate([], options)
      : connection.duplicate(options);
  // The Worker reports its errors; without a listener, one that follows its close would end the process.
  client.on('error', () => {});
  return { connection: client, release: () => void end(client).catch(() => {}) };
}

async function end(client: Client): Promise<void> {
  await (client.disconnect ?? client.destroy)?.call(client);
}

function isClient(connection: ConnectionOptions): connection is ConnectionOptions & Client {
  return typeof (connection as { duplicate?: unknown }).duplicate === 'function';
}
