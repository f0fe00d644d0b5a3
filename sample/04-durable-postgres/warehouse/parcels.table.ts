import { sql } from 'drizzle-orm';
import { pgSchema, text } from 'drizzle-orm/pg-core';
import type { Database } from '../storage.js';

const warehouse = pgSchema('warehouse');

/** The primary key allows one parcel for each order. */
export const parcels = warehouse.table('parcels', {
  orderId: text('order_id').primaryKey(),
  customer: text().notNull(),
});

/** In a real application, use a migration. */
export async function createParcels(database: Database): Promise<void> {
  await database.execute(sql`CREATE SCHEMA IF NOT EXISTS warehouse`);
  await database.execute(
    sql`CREATE TABLE IF NOT EXISTS warehouse.parcels (order_id text PRIMARY KEY, customer text NOT NULL)`,
  );
}
