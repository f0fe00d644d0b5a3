/** One step of the schema, from the version before it to its own. Steps are only added: one that was published never changes. */
export interface MigrationStep {
  /** 1 for the first. */
  readonly version: number;
  /** What it makes, in a word. */
  readonly name: string;
  /** SQL, in order; run in one transaction, with the steps before it in place. */
  readonly statements: readonly string[];
}

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

/**
 * The table of the endpoint store.
 *
 * What an application writes freely is `json`, not `jsonb`: it is given back as it was, also with characters that `jsonb`
 * refuses. Sealed keys have a column of their own, so that a role that looks on can be kept from it. Lists are in the order of
 * code units, which no collation has: `code_units` are those of the id.
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
 * A page is read from one end of an index, whichever of tenant, endpoint and status is asked for. Most deliveries are
 * delivered: an index over the others is small.
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

/** Every step of the schema, in order. A new one goes to the end. */
export function migrationSteps(schema: string): readonly MigrationStep[] {
  return [
    { version: 1, name: 'replay', statements: replayTable(schema) },
    { version: 2, name: 'endpoint', statements: endpointTable(schema) },
    { version: 3, name: 'delivery', statements: deliveryTables(schema) },
  ];
}
