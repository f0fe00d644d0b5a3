/** Anything that runs a statement by itself: a `Pool` of node-postgres, a PGlite. */
export interface PostgresClient {
  /** @returns `{ rows }`, or the list of such that several statements give */
  query(text: string, values?: unknown[]): Promise<unknown>;
}

/**
 * A client, or what gives one when it is first needed, and each time after that: `() => queue.database()` of an
 * {@link EmbeddedDeliveryQueue}.
 */
export type PostgresClientSource =
  PostgresClient | (() => PostgresClient | Promise<PostgresClient>);
