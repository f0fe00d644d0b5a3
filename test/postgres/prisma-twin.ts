import type { Pool, PoolClient } from 'pg';
import { underSavepoint, type TransactionLibrary } from './transaction-library.interface.js';

/**
 * What a PrismaClient hands out, as far as it can be told from others. Prisma itself is no dependency: its client is generated,
 * by a tool that is bigger than all the others together. Compared with Prisma 7.10 over @prisma/adapter-pg, whose `tx` has
 * `$transaction` but neither `$connect` nor `$disconnect`, also that of a client that was extended.
 */
export function prisma(pool: Pool): TransactionLibrary {
  return {
    name: 'Prisma',
    async transaction(work) {
      const client = await pool.connect();
      try {
        await client.query('BEGIN');
        await work(clientOf(client));
        await client.query('COMMIT');
      } catch (error) {
        await client.query('ROLLBACK');
        throw error;
      } finally {
        client.release();
      }
    },
    nested: async (tx: ReturnType<typeof clientOf>, work) =>
      underSavepoint(
        async (statement) => tx.$executeRawUnsafe(statement),
        async () => work(tx),
      ),
    run: async (tx: ReturnType<typeof clientOf>, statement) => tx.$executeRawUnsafe(statement),
    outside: { 'a PrismaClient': { ...clientOf(pool), $connect() {}, $disconnect() {} } },
    close: async () => pool.end(),
  };
}

function clientOf(client: Pool | PoolClient) {
  return {
    $queryRawUnsafe: async (text: string, ...values: unknown[]) =>
      client.query(text, values).then(({ rows }) => rows, rethrow),
    $executeRawUnsafe: async (text: string, ...values: unknown[]) =>
      client.query(text, values).then(({ rowCount }) => rowCount ?? 0, rethrow),
    $transaction: async (): Promise<never> => {
      throw new Error('This twin has savepoints only.');
    },
  };
}

/** Its errors have a code of Prisma's, and PostgreSQL's far inside. */
function rethrow({ code, message }: { code?: string; message?: string }): never {
  const cause = { originalCode: code, originalMessage: message, kind: 'postgres' };
  throw Object.assign(new Error(`Raw query failed. Code: \`${code}\`.`), {
    code: 'P2010',
    meta: { driverAdapterError: { name: 'DriverAdapterError', cause } },
  });
}
