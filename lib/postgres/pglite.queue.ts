import { resolve } from 'node:path';
/** @ts-ignore Applications on a PostgreSQL server do not install this optional peer, and compile without it. */
import type { PGlite } from '@electric-sql/pglite';
import { readOptions } from '../options/read-options.js';
import * as option from '../options/rules.js';
import { DatabaseQueue } from './database.queue.js';
import { EmbeddedHost } from './embedded-database.js';
import {
  DATABASE_QUEUE,
  type DatabaseQueueOptions,
  resolveDatabaseQueueOptions,
} from './queue-options.js';

export interface PgliteQueueOptions extends DatabaseQueueOptions {
  /**
   * Directory of the database, created if it does not exist. Only one process can use it at a time; queues of that process may share
   * it, each with a different `name`.
   */
  readonly directory: string;
}

const OPTIONS = option.object<PgliteQueueOptions>()(
  {
    ...DATABASE_QUEUE,
    directory: option.required(
      option.text('must be a path'),
      'must be a path; is the environment variable set?',
    ),
  },
  { form: 'an object: { directory }' },
);

/**
 * Stores deliveries in an embedded PostgreSQL, PGlite: no server, for one process.
 *
 * Deliveries survive a crash of the process, but not a power cut: PGlite does not flush to disk. It takes 300 to 850 MB of
 * memory, and the first start takes some seconds. A second process with the same directory fails to start.
 *
 * ```ts
 * WebhookModule.forRoot({
 *   publisher: { …, queue: new PgliteQueue({ directory: 'var/webhooks' }) },
 * })
 * ```
 */
export class PgliteQueue extends DatabaseQueue {
  private readonly embedded: EmbeddedHost;

  /** @throws {@link WebhookConfigurationError} */
  constructor(options: PgliteQueueOptions) {
    const read = readOptions(OPTIONS, options, 'PgliteQueue');
    const resolved = resolveDatabaseQueueOptions(read);
    const host = new EmbeddedHost(resolve(read.directory), resolved.name, resolved.clock);
    super(host, resolved);
    this.embedded = host;
  }

  /**
   * The database, for tables of the application and for transactions: `database.transaction(async (tx) => …)`. Inside a transaction,
   * every other call than `publish(…, { tx })` waits for its end. The queue closes the database when it stops.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`; {@link WebhookDeliveryError} `shutting_down` after the queue has stopped
   */
  async database(): Promise<PGlite> {
    await this.open();
    return this.embedded.use();
  }
}
