import { type EventEmitter, once } from 'node:events';
import { type ConnectionOptions, type Queue, Worker, type WorkerOptions } from 'bullmq';
import { inTime, SystemClock } from '../clock/webhook-clock.js';
import { isReadOnlyReplica } from '../redis/redis-failure.js';
import { canReconnect } from '../redis/redis-script.js';
import type { DeliveredResult, DeliveryJob, DeliveryJobData } from './delivery-job.js';

/** Milliseconds. */
const PAUSE_AFTER_ERROR = 1_000;
/** Checks for jobs of crashed workers: such a job runs again a sixth of a lease after its lease expired, at the latest. */
const STALLED_CHECKS_PER_LEASE = 6;
/** Seconds that BullMQ waits for a job by default. */
const LONGEST_WAIT = 5;

interface DeliveryWorkerParts {
  readonly process: (job: DeliveryJob, token: string) => Promise<DeliveredResult>;
  /** Called with every error of the connection and of a command. */
  readonly onError: (error: unknown) => void;
  /** Called when a job is fetched or a connection is ready, after an error too. */
  readonly onWorking: () => void;
  /** Called once a job is completed or failed. */
  readonly onEnded: (job: DeliveryJob) => void;
  /** Called when no job is due. */
  readonly onDrained: () => void;
  readonly concurrency: number;
  /** Milliseconds. */
  readonly lease: number;
  /** Milliseconds that a command may take. */
  readonly timeout: number;
}

/**
 * BullMQ's Worker on a connection of its own.
 *
 * - It pauses after an error. BullMQ fetches again as soon as a fetch has failed, so a Redis that is full, a replica or
 *   loading its data would keep the process busy with nothing else.
 * - A connection on which a command gets no answer in time is destroyed: a host that vanishes closes no connection.
 */
export class DeliveryWorker {
  private readonly worker: Worker<DeliveryJobData, DeliveredResult>;
  private readonly releaseConnection: () => void;
  private resuming: NodeJS.Timeout | undefined;
  private readonly probing: NodeJS.Timeout;

  constructor(
    queue: Queue,
    private readonly parts: DeliveryWorkerParts,
  ) {
    const { connection, prefix, skipVersionCheck } = queue.opts;
    const { concurrency, lease, timeout } = parts;
    const own = workerConnection(connection);
    this.releaseConnection = own.release;
    const options: WorkerOptions = {
      connection: own.connection,
      ...(prefix !== undefined && { prefix }),
      ...(skipVersionCheck !== undefined && { skipVersionCheck }),
      concurrency,
      lockDuration: lease,
      // A check runs jobs again whose lease has expired, if the check before has seen them active.
      stalledInterval: Math.ceil(lease / STALLED_CHECKS_PER_LEASE),
      // BullMQ counts a crash as an attempt; no number of crashes may end a delivery.
      maxStalledCount: Number.MAX_SAFE_INTEGER,
      drainDelay: Math.min(LONGEST_WAIT, timeout / 2_000),
    };
    const process = async (job: DeliveryJob, token?: string) => parts.process(job, token!);
    this.worker = new Worker<DeliveryJobData, DeliveredResult>(queue.name, process, options);
    this.worker
      .on('error', (error) => this.pauseAfter(error))
      .on('ready', parts.onWorking)
      .on('active', parts.onWorking)
      .on('completed', parts.onEnded)
      .on('failed', (job) => job !== undefined && parts.onEnded(job))
      .on('drained', parts.onDrained);
    this.probing = setInterval(() => void this.probe(), timeout / 2).unref();
  }

  async waitUntilReady(): Promise<void> {
    await this.worker.waitUntilReady();
  }

  /** Waits for running jobs, unless Redis is away: that would keep the process alive. */
  async close(): Promise<void> {
    clearTimeout(this.resuming);
    clearInterval(this.probing);
    const { client, blockingClient } = this.worker.getBackend();
    const [main, blocking] = await Promise.all([current(client), current(blockingClient)]);
    const isConnected = main?.status === 'ready';
    // BullMQ would wait forever for the end of one that is being replaced.
    if (isConnected && blocking?.status === 'reconnecting') await nextReady(blocking);
    await this.worker.close(!isConnected || blocking?.status !== 'ready');
    this.releaseConnection();
  }

  /** Ends the connections, so that the leases of running jobs expire. */
  async abandon(): Promise<void> {
    await this.worker.disconnect().catch(() => {});
  }

  private pauseAfter(error: unknown): void {
    this.parts.onError(error);
    if (this.resuming !== undefined || this.worker.closing !== undefined) return;
    void this.worker.pause(true);
    this.resuming = setTimeout(() => {
      this.resuming = undefined;
      void this.worker.resume();
    }, PAUSE_AFTER_ERROR).unref();
  }

  /** BullMQ watches its blocking connection itself, but not the one for its other commands. */
  private async probe(): Promise<void> {
    const client = await current(this.worker.getBackend().client);
    if (!isConnected(client)) return;
    const makeError = (): Error => new Error('no answer');
    const command = async () => client.get(this.worker.toKey('webhooks:probe'));
    await inTime(new SystemClock(), this.parts.timeout / 2, command, makeError).catch((error) => {
      this.parts.onError(error);
      void reconnect(this.worker);
    });
  }
}

/** A client of a queue or worker; `undefined` until it has been connected once. */
async function current<C>(client: Promise<C> | undefined): Promise<C | undefined> {
  const turn = new Promise<undefined>((resolve) => setImmediate(() => resolve(undefined)));
  return Promise.race([client?.catch(() => undefined), turn]);
}

/**
 * Destroys the connection of a queue or worker, and connects again. A client that would not is left as it is.
 *
 * @returns a promise that resolves once it is connected, or an attempt has failed
 */
export async function reconnect(owner: Pick<Queue, 'getBackend'>): Promise<void> {
  const client = await current(owner.getBackend().client);
  if (!isConnected(client) || !canReconnect(client)) return;
  client.disconnect(true);
  await nextReady(client);
}

async function nextReady(client: object): Promise<void> {
  await once(client as EventEmitter, 'ready').catch(() => {});
}

/** Also before the server has answered the first command of a new connection: a lost network swallows that one too. */
function isConnected<C extends { readonly status: string }>(client: C | undefined): client is C {
  return client?.status === 'ready' || client?.status === 'connect';
}

interface OwnConnection {
  readonly connection: ConnectionOptions;
  /** Ends the client that was made here, if any. */
  readonly release: () => void;
}

/** The methods that clients of ioredis, of node-redis and of BullMQ's adapters have in common. */
interface Client {
  readonly isCluster?: boolean;
  readonly options?: { readonly redisOptions?: object; readonly socket?: object };
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
 * A client is duplicated, so that stopping the Worker never ends the application's own. It reconnects even if the application's does
 * not: the application cannot connect the Worker again.
 */
export function workerConnection(connection: ConnectionOptions): OwnConnection {
  const reconnects = canReconnect(isClient(connection) ? connection : { options: connection });
  const socket = isClient(connection) ? connection.options?.socket : undefined;
  // A timeout would end the command with which BullMQ waits for a job; here BullMQ and the probe watch the connections.
  const settings = {
    enableOfflineQueue: true,
    maxRetriesPerRequest: null,
    commandTimeout: undefined,
    // A primary that becomes a replica keeps its connections. The Worker pauses after each error, so this is no endless loop.
    reconnectOnError: isReadOnlyReplica,
    // The defaults of the clients take the place of `undefined`.
    ...(!reconnects && { retryStrategy: undefined, clusterRetryStrategy: undefined }),
    // Those of node-redis.
    ...(socket !== undefined && {
      socket: {
        ...socket,
        socketTimeout: undefined,
        ...(!reconnects && { reconnectStrategy: undefined }),
      },
    }),
  };
  if (!isClient(connection)) {
    return { connection: { ...connection, ...settings }, release: () => {} };
  }
  // Each client knows some of them and ignores the others. ioredis 5 keeps the process alive for the socketTimeout of a
  // connection that it has closed.
  const options = { ...settings, disableOfflineQueue: false, socketTimeout: undefined };
  const redisOptions = { ...connection.options?.redisOptions, ...settings };
  const client =
    connection.isCluster === true
      ? connection.duplicate([], { ...options, redisOptions })
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
