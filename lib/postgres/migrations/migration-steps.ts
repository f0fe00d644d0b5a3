/** A step of the schema, from the previous version to its own. Steps are only added: a published one never changes. */
export interface MigrationStep {
  /** 1 for the first. */
  readonly version: number;
  /** Name of the table it creates. */
  readonly name: string;
  /** SQL statements, in order; they run in one transaction. */
  readonly statements: readonly string[];
}

/**
 * The table of the replay store. Each statement can be run any number of times, since installations from before the migrations already
 * have the table.
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

/**
 * The table of the endpoint store.
 *
 * Free-form values are `json`, not `jsonb`, which refuses some characters and does not preserve the text. Sealed keys have a column of
 * their own, so that a read-only role can be denied it. Lists are in the order of UTF-16 code units, which no collation
 * has: `code_units` are those of the id.
 */
function endpointTable(schema: string): readonly string[] {
  const table = `${schema}.endpoint`;
  return [
    `CREATE TABLE ${table} (
  id text COLLATE "C" PRIMARY KEY,
  code_units bytea NOT NULL UNIQUE,
  tenant text COLLATE "C",
  url text NOT NULL,
  events json NOT NULL,
  details json NOT NULL,
  keys json NOT NULL,
  disabled_at timestamptz,
  disabled_reason text,
  version integer NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL
);`,
    `CREATE INDEX endpoint_tenant ON ${table} (tenant, code_units);`,
  ];
}

/**
 * The tables of the delivery log: deliveries, and the attempts of each.
 *
 * Each filter by tenant, endpoint or status reads a page from one end of an index. Most deliveries are delivered, so the index over the
 * others is small.
 */
function deliveryTables(schema: string): readonly string[] {
  const delivery = `${schema}.delivery`;
  const attempt = `${schema}.attempt`;
  return [
    `CREATE TABLE ${delivery} (
  id text COLLATE "C" PRIMARY KEY,
  event_id text COLLATE "C" NOT NULL,
  event text COLLATE "C" NOT NULL,
  endpoint_id text COLLATE "C",
  tenant text COLLATE "C",
  details json NOT NULL,
  payload bytea,
  status text NOT NULL CHECK (status IN ('pending', 'delivered', 'dead')),
  attempts integer NOT NULL,
  next_attempt_at timestamptz,
  reason text,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL
);`,
    `CREATE INDEX delivery_created ON ${delivery} (created_at, id);`,
    `CREATE INDEX delivery_tenant ON ${delivery} (tenant, created_at, id);`,
    `CREATE INDEX delivery_endpoint ON ${delivery} (endpoint_id, created_at, id);`,
    `CREATE INDEX delivery_unfinished ON ${delivery} (status, created_at, id) WHERE status <> 'delivered';`,
    `CREATE INDEX delivery_event_id ON ${delivery} (event_id);`,
    `CREATE TABLE ${attempt} (
  delivery_id text COLLATE "C" NOT NULL REFERENCES ${delivery} ON DELETE CASCADE,
  at timestamptz NOT NULL,
  attempt integer NOT NULL,
  method text NOT NULL,
  duration_ms double precision NOT NULL,
  status_code integer,
  reason text,
  answer text,
  PRIMARY KEY (delivery_id, at, attempt)
);`,
  ];
}

/**
 * The table of the inbox. It holds some thousand rows, so only what every write needs has an index: the ends of both kinds, and the
 * entries of a queued event.
 */
function inboxTable(schema: string): readonly string[] {
  const table = `${schema}.inbox`;
  return [
    `CREATE TABLE ${table} (
  id text COLLATE "C" PRIMARY KEY,
  at timestamptz NOT NULL,
  refused boolean NOT NULL,
  outcome text NOT NULL,
  runs integer,
  receiver text COLLATE "C",
  code text COLLATE "C",
  event text COLLATE "C",
  event_id text COLLATE "C",
  issuer text COLLATE "C",
  delivery_id text COLLATE "C",
  details text NOT NULL,
  content text
);`,
    `CREATE INDEX inbox_accepted ON ${table} (id) WHERE NOT refused;`,
    `CREATE INDEX inbox_refused ON ${table} (id) WHERE refused;`,
    `CREATE INDEX inbox_delivery ON ${table} (delivery_id, id) WHERE delivery_id IS NOT NULL;`,
  ];
}

/** All steps of the schema, in order. Append new ones. */
export function migrationSteps(schema: string): readonly MigrationStep[] {
  return [
    { version: 1, name: 'replay', statements: replayTable(schema) },
    { version: 2, name: 'endpoint', statements: endpointTable(schema) },
    { version: 3, name: 'delivery', statements: deliveryTables(schema) },
    { version: 4, name: 'inbox', statements: inboxTable(schema) },
  ];
}
