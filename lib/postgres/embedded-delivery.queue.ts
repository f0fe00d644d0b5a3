import { resolve } from 'node:path';
import type { PGlite } from '@electric-sql/pglite';
import { ConfigurationFaults } from '../options/configuration-faults.js';
import { WebhookConfigurationError } from '../errors/webhook-configuration.error.js';
import { databaseFailure } from './database-failure.js';
import { EmbeddedBossHost } from './embedded-boss.host.js';
import type { JobDeliveryQueueOptions } from './job-delivery-queue-options.interface.js';
import { JobDeliveryQueue } from './job-delivery.queue.js';
import { resolveJobQueueOptions } from './job-queue-options.resolver.js';

/** A directory, and what every queue on PostgreSQL takes. */
export interface EmbeddedDeliveryQueueOptions extends JobDeliveryQueueOptions {
  /**
   * Where the database lies; made where it does not exist. One process at a time; several queues of it may share the directory,
   * each under a `name` of its own.
   */
  readonly directory: string;
}

/**
 * Keeps deliveries in an embedded PostgreSQL, PGlite, through pg-boss: no server, for one process.
 *
 * They survive a crash of the process, not a power cut: PGlite does not flush to the disk. It takes 300 to 850 MB of memory,
 * and the first start some seconds. A process that finds another one in its directory does not start.
 *
 * ```ts
 * WebhookModule.forRoot({
 *   publisher: { …, queue: new EmbeddedDeliveryQueue({ directory: 'var/webhooks' }) },
 * })
 * ```
 */
export class EmbeddedDeliveryQueue extends JobDeliveryQueue {
  private readonly embedded: EmbeddedBossHost;

  /** @throws {@link WebhookConfigurationError} */
  constructor(options: EmbeddedDeliveryQueueOptions) {
    const faults = new ConfigurationFaults('EmbeddedDeliveryQueue');
    const { directory } = options;
    const isPath = typeof directory === 'string' && directory !== '';
    faults.require(isPath, 'directory', 'must be a path: is the environment variable set?');
    const resolved = resolveJobQueueOptions(options, faults);
    if (faults.all.length > 0) throw new WebhookConfigurationError(faults.all);
    const host = new EmbeddedBossHost(resolve(directory), 'webhooks', resolved.name);
    super(host, resolved);
    this.embedded = host;
  }

  /**
   * The database, for tables of the application's own and for transactions: `database.transaction(async (tx) => …)`. Inside of
   * one, anything but `publish(…, { tx })` would wait for its end. Closing it is the queue's.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`
   */
  async database(): Promise<PGlite> {
    try {
      await this.open();
    } catch (error) {
      throw databaseFailure('The delivery queue', error);
    }
    return this.embedded.database;
  }
}
