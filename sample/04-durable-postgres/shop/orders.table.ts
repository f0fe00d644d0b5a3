import { sql } from 'drizzle-orm';
import { integer, pgSchema, text } from 'drizzle-orm/pg-core';
import type { Database } from '../storage.js';

const shop = pgSchema('shop');

export const orders = shop.table('orders', {
  id: text().primaryKey(),
  customer: text().notNull(),
  total: integer().notNull(),
});

/** In a real application, use a migration. */
export async function createOrders(database: Database): Promise<void> {
  await database.execute(sql`CREATE SCHEMA IF NOT EXISTS shop`);
  await database.execute(
    sql`CREATE TABLE IF NOT EXISTS shop.orders (id text PRIMARY KEY, customer text NOT NULL, total integer NOT NULL)`,
  );
}
