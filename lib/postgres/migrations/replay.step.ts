/**
 * The table of the replay store, each statement as it can be run any number of times: installations that are older than the
 * migrations have it already, and keep it.
 */
export function replayTable(schema: string): readonly string[] {
  const table = `${schema}.replay`;
  return [
    `CREATE TABLE IF NOT EXISTS ${table} (
  id text PRIMARY KEY,
  event text NOT NULL,
  fingerprint text NOT NULL,
  owner text,
  done boolean NOT NULL DEFAULT false,
  expires_at timestamptz NOT NULL,
  keep_until timestamptz NOT NULL
);`,
    `CREATE INDEX IF NOT EXISTS replay_expires_at ON ${table} (expires_at);`,
  ];
}
