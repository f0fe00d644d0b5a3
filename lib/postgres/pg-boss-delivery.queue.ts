import { ConfigurationFaults } from '../options/configuration-faults.js';
import { WebhookConfigurationError } from '../errors/webhook-configuration.error.js';
import { isSchemaName, SCHEMA_RULE } from './boss-host.js';
import { JobDeliveryQueue } from './job-delivery.queue.js';
import { resolveJobQueueOptions } from './job-queue-options.resolver.js';
import type { PgBossDeliveryQueueOptions } from './pg-boss-delivery-queue-options.interface.js';
import { ServerBossHost } from './server-boss.host.js';

/**
 * Keeps deliveries in PostgreSQL, through pg-boss: shared by any number of processes, as durable as the database, and able to
 * join a transaction of the caller's.
 *
 * ```ts
 * WebhookModule.forRoot({
 *   publisher: { …, queue: new PgBossDeliveryQueue({ connectionString: process.env.DATABASE_URL }) },
 * })
 * ```
 *
 * A `tx` may be a Client of node-postgres on which a transaction is open, an EntityManager or QueryRunner of TypeORM, the `tx` of
 * Prisma or Drizzle, a Transaction of Kysely or Knex. It must be of the same database. What was recorded in it is
 * attempted after its commit, within `pollInterval`.
 */
export class PgBossDeliveryQueue extends JobDeliveryQueue {
  /** @throws {@link WebhookConfigurationError} */
  constructor(options: PgBossDeliveryQueueOptions) {
    const faults = new ConfigurationFaults('PgBossDeliveryQueue');
    const { connectionString, pool, boss } = options;
    const sources = [connectionString, pool, boss].filter((source) => source !== undefined);
    faults.require(
      sources.length === 1,
      '',
      'needs exactly one of connectionString, pool and boss: is the environment variable set?',
    );
    faults.require(
      connectionString === undefined ||
        (typeof connectionString === 'string' && /^postgres(ql)?:\/\//.test(connectionString)),
      'connectionString',
      'must begin with postgresql:// or postgres://',
    );
    faults.require(
      pool === undefined || typeof pool.query === 'function',
      'pool',
      'must be a Pool of pg: new Pool({ connectionString })',
    );
    faults.require(
      boss === undefined || typeof boss.createQueue === 'function',
      'boss',
      'must be a PgBoss of pg-boss',
    );
    const schema = options.schema ?? (boss === undefined ? 'webhooks' : 'pgboss');
    faults.require(isSchemaName(schema), 'schema', SCHEMA_RULE);
    const resolved = resolveJobQueueOptions(options, faults);
    if (faults.all.length > 0) throw new WebhookConfigurationError(faults.all);
    super(new ServerBossHost(options, schema), resolved);
  }
}
