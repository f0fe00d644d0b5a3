import { rowsOf } from './query-result.js';
import { hasMethods, noTransaction, type TransactionAdapter } from './transaction-adapter.js';

/** The part of the `tx` of Prisma that is used. */
interface PrismaTransactionLike {
  $queryRawUnsafe(text: string, ...values: unknown[]): PromiseLike<unknown>;
}

export const prismaTransaction: TransactionAdapter = {
  name: 'the tx of an interactive transaction of Prisma',
  join(tx) {
    if (!hasMethods(tx, '$queryRawUnsafe', '$executeRawUnsafe')) return undefined;
    // What a transaction hands out can neither connect nor disconnect.
    if (hasMethods(tx, '$connect')) {
      const remedy = 'give the tx of prisma.$transaction(async (tx) => …)';
      throw noTransaction('the PrismaClient', remedy);
    }
    const client = tx as unknown as PrismaTransactionLike;
    return {
      executeSql: async (text, values = []) => ({
        rows: rowsOf(await client.$queryRawUnsafe(text, ...values)),
      }),
    };
  },
};
