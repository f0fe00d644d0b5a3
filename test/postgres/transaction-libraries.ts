import { drizzle } from 'drizzle-orm/node-postgres';
import knex from 'knex';
import { Kysely, PostgresDialect, sql, type ControlledTransaction } from 'kysely';
import { Pool, type PoolClient } from 'pg';
import { DataSource, type EntityManager, type QueryRunner } from 'typeorm';
import { urlOf } from '../fixtures/services.js';
import { prisma } from './prisma-twin.js';
import { underSavepoint, type TransactionLibrary } from './transaction-library.interface.js';

const connectionString = urlOf('PostgreSQL');

/** Everything whose transactions can be joined, on the tests' own server; Prisma by its twin. */
export async function openLibraries(): Promise<TransactionLibrary[]> {
  const dataSource = new DataSource({ type: 'postgres', url: connectionString });
  await dataSource.initialize();
  return [
    nodePostgres(),
    entityManager(dataSource),
    queryRunner(dataSource),
    prisma(newPool()),
    drizzleOrm(),
    kysely(),
    controlledKysely(),
    knexTransaction(),
  ];
}

/** The names of {@link openLibraries}, which are needed before anything is open. */
export const LIBRARY_NAMES = [
  'node-postgres',
  'TypeORM (EntityManager)',
  'TypeORM (QueryRunner)',
  'Prisma',
  'Drizzle',
  'Kysely',
  'Kysely (ControlledTransaction)',
  'Knex',
] as const;

function newPool(): Pool {
  return new Pool({ connectionString });
}

export function nodePostgres(pool = newPool()): TransactionLibrary {
  return {
    name: 'node-postgres',
    async transaction(work) {
      const client = await pool.connect();
      try {
        await client.query('BEGIN');
        await work(client);
        await client.query('COMMIT');
      } catch (error) {
        await client.query('ROLLBACK');
        throw error;
      } finally {
        client.release();
      }
    },
    nested: async (client: PoolClient, work) =>
      underSavepoint(
        async (statement) => client.query(statement),
        async () => work(client),
      ),
    run: async (client: PoolClient, statement) => client.query(statement),
    outside: { 'a Pool': pool },
    close: async () => pool.end(),
  };
}

function entityManager(dataSource: DataSource): TransactionLibrary {
  return {
    name: 'TypeORM (EntityManager)',
    transaction: async (work) => dataSource.transaction(work),
    nested: async (manager: EntityManager, work) => manager.transaction(work),
    run: async (manager: EntityManager, statement) => manager.query(statement),
    outside: { 'a DataSource': dataSource, 'the manager of a DataSource': dataSource.manager },
    close: async () => dataSource.destroy(),
  };
}

function queryRunner(dataSource: DataSource): TransactionLibrary {
  const inTransaction: TransactionLibrary['nested'] = async (runner: QueryRunner, work) => {
    await runner.startTransaction();
    try {
      await work(runner);
      await runner.commitTransaction();
    } catch (error) {
      await runner.rollbackTransaction();
      throw error;
    }
  };
  return {
    name: 'TypeORM (QueryRunner)',
    async transaction(work) {
      const runner = dataSource.createQueryRunner();
      try {
        await inTransaction(runner, work);
      } finally {
        await runner.release();
      }
    },
    nested: inTransaction,
    run: async (runner: QueryRunner, statement) => runner.query(statement),
    outside: { 'a QueryRunner': dataSource.createQueryRunner() },
    close: async () => {},
  };
}

export function drizzleOrm(pool = newPool()): TransactionLibrary {
  const db = drizzle(pool);
  type Tx = Parameters<Parameters<typeof db.transaction>[0]>[0];
  return {
    name: 'Drizzle',
    transaction: async (work) => db.transaction(work),
    nested: async (tx: Tx, work) => tx.transaction(work),
    run: async (tx: Tx, statement) => tx.execute(statement),
    outside: { 'a database of Drizzle': db },
    close: async () => db.$client.end(),
  };
}

function kysely(): TransactionLibrary {
  const db = new Kysely<unknown>({ dialect: new PostgresDialect({ pool: newPool() }) });
  const run: TransactionLibrary['run'] = async (tx: Kysely<unknown>, statement) =>
    sql.raw(statement).execute(tx);
  return {
    name: 'Kysely',
    transaction: async (work) => db.transaction().execute(work),
    nested: async (tx, work) =>
      underSavepoint(
        (statement) => run(tx, statement),
        async () => work(tx),
      ),
    run,
    outside: { 'a Kysely': db },
    close: async () => db.destroy(),
  };
}

function controlledKysely(): TransactionLibrary {
  const db = new Kysely<unknown>({ dialect: new PostgresDialect({ pool: newPool() }) });
  return {
    name: 'Kysely (ControlledTransaction)',
    async transaction(work) {
      const tx = await db.startTransaction().execute();
      try {
        await work(tx);
        await tx.commit().execute();
      } catch (error) {
        await tx.rollback().execute();
        throw error;
      }
    },
    async nested(tx: ControlledTransaction<unknown>, work) {
      const inner = await tx.savepoint('inner_work').execute();
      try {
        await work(inner);
      } catch (error) {
        await inner.rollbackToSavepoint('inner_work').execute();
        throw error;
      }
    },
    run: async (tx: Kysely<unknown>, statement) => sql.raw(statement).execute(tx),
    outside: {},
    close: async () => db.destroy(),
  };
}

function knexTransaction(): TransactionLibrary {
  const db = knex({ client: 'pg', connection: connectionString });
  return {
    name: 'Knex',
    transaction: async (work) => db.transaction(work),
    nested: async (trx, work) => trx.transaction(work),
    run: (trx, statement) => trx.raw(statement),
    outside: { 'a Knex': db },
    close: async () => db.destroy(),
  };
}
