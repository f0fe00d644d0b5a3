/** A step of the schema, from the previous version to its own. Steps are only added: a published one never changes. */
export interface MigrationStep {
  /** 1 for the first. */
  readonly version: number;
  /** Name of the table it creates, or of what it adds. */
  readonly name: string;
  /** SQL statements, in order; they run in one transaction. */
  readonly statements: readonly string[];
  /** Set if older versions of the package do not work with the changed tables, and must refuse them. */
  readonly breaking?: true;
}

/** The table of the replay store. */
function replayTable(schema: string): readonly string[] {
  const table = `${schema}.replay`;
  return [
    `CREATE TABLE ${table} (
  id text PRIMARY KEY,
  event text NOT NULL,
  fingerprint text NOT NULL,
  owner text,
  done boolean NOT NULL DEFAULT false,
  expires_at timestamptz NOT NULL,
  keep_until timestamptz NOT NULL
);`,
    `CREATE INDEX replay_expires_at ON ${table} (expires_at);`,
  ];
}

/**
 * The table of the endpoint store.
 *
 * Free-form values are `json`, not `jsonb`, which refuses some characters and does not preserve the text. Sealed keys have a column of
 * their own, so that a read-only role can be denied it. Lists are in the order of UTF-16 code units, which no collation
 * has: `code_units` are those of the id.
 *
 * `subscription_keys` contains the tenant, so that one index finds the endpoints of an event. Without `fastupdate`, changes are
 * in the index at once, and no search reads a list of pending ones.
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
  subscription_keys text[] COLLATE "C" NOT NULL,
  details json NOT NULL,
  keys json NOT NULL,
  disabled_at timestamptz,
  disabled_reason text,
  version integer NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL
);`,
    `CREATE INDEX endpoint_tenant ON ${table} (tenant, code_units);`,
    `CREATE INDEX endpoint_subscription ON ${table} USING gin (subscription_keys) WITH (fastupdate = off);`,
  ];
}

/**
 * The tables of the queues: a row for each delivery, and one for each attempt.
 *
 * - A claim only writes `claim` and `leased_until`, which no index contains, so it is a HOT update. A running delivery is one
 *   whose lease has not expired; there is no state for it.
 * - The columns that change are side by side and ahead of the payload, and `fillfactor` leaves space on the page: a new
 *   version of a row costs the changed bytes of WAL only, however large the payload is.
 * - `holds_key`: later deliveries of the ordering key wait for this one. It is the rule; the index `delivery_turn` answers it.
 * - `held`: an earlier delivery of the key held it when this one was recorded. It keeps a backlog of one key out of the indexes that
 *   claims read, and is cleared when the turn of the delivery comes.
 * - `limited`: the lane had limits when the delivery was recorded. It keeps deliveries that wait for a limit out of the index that other
 *   claims read; the row of `delivery_limit` is the rule.
 * - `payload_dropped`: the delivery had a payload. Without one, `payload` is null from the start.
 * - `subject`: an event may have to be deleted because of whom it is about.
 * - `signed` is what the token of an attempt said, as a JSON list: the facts that its delivery does not have.
 * - Lists read a page from one end of an index that ends in `(created_at, id)`.
 * - The order of the indexes matters: without statistics, several of them seem to cost the same, and the planner takes the first.
 * - `attempt` has no foreign key, which would lock the delivery again for each insert. Both tables are written and pruned
 *   in the same statements.
 */
function deliveryTables(schema: string): readonly string[] {
  const delivery = `${schema}.delivery`;
  return [
    `CREATE TABLE ${delivery} (
  seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  created_at timestamptz NOT NULL,
  due_at timestamptz NOT NULL,
  leased_until timestamptz NOT NULL DEFAULT '-infinity',
  updated_at timestamptz NOT NULL,
  claim integer NOT NULL DEFAULT 0,
  attempts integer NOT NULL DEFAULT 0,
  throws integer NOT NULL DEFAULT 0,
  holds_key boolean NOT NULL DEFAULT false,
  held boolean NOT NULL DEFAULT false,
  limited boolean NOT NULL DEFAULT false,
  payload_dropped boolean NOT NULL DEFAULT false,
  status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'delivered', 'dead')),
  reason text,
  queue text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  event_id text COLLATE "C" NOT NULL,
  event text COLLATE "C" NOT NULL,
  subject text COLLATE "C",
  endpoint_id text COLLATE "C",
  tenant text COLLATE "C",
  receiver text COLLATE "C",
  lane text COLLATE "C" NOT NULL,
  ordering_key text COLLATE "C",
  sequence bigint,
  details json NOT NULL,
  payload bytea,
  UNIQUE (queue, id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);`,
    `CREATE INDEX delivery_unfinished ON ${delivery} (queue, status, created_at, id) WHERE status <> 'delivered';`,
    `CREATE INDEX delivery_delivered ON ${delivery} (queue, updated_at) WHERE status = 'delivered';`,
    `CREATE INDEX delivery_created ON ${delivery} (queue, created_at, id);`,
    `CREATE INDEX delivery_endpoint ON ${delivery} (endpoint_id, created_at, id) WHERE endpoint_id IS NOT NULL;`,
    `CREATE INDEX delivery_tenant ON ${delivery} (tenant, created_at, id) WHERE tenant IS NOT NULL;`,
    `CREATE INDEX delivery_event ON ${delivery} (event_id, created_at, id);`,
    `CREATE INDEX delivery_lane ON ${delivery} (queue, lane, due_at, seq) WHERE status = 'pending' AND NOT held;`,
    `CREATE INDEX delivery_turn ON ${delivery} (queue, lane, ordering_key, sequence) WHERE holds_key;`,
    `CREATE INDEX delivery_due ON ${delivery} (queue, due_at, seq) WHERE status = 'pending' AND NOT held AND NOT limited;`,
    `CREATE INDEX delivery_limited ON ${delivery} (queue, lane) WHERE status = 'pending' AND NOT held AND limited;`,
    `CREATE INDEX delivery_subject ON ${delivery} (subject, created_at, id) WHERE subject IS NOT NULL;`,
    `CREATE TABLE ${schema}.attempt (
  delivery_seq bigint NOT NULL,
  claim integer NOT NULL,
  attempt integer NOT NULL,
  started_at timestamptz NOT NULL,
  duration_ms double precision NOT NULL,
  method text,
  status_code integer,
  reason text,
  answer text,
  signed text,
  PRIMARY KEY (delivery_seq, claim)
);`,
  ];
}

/**
 * The other tables of the queues.
 *
 * - `delivery_key` numbers the deliveries of a key. A transaction that records one locks its row until the commit, so that the
 *   numbers are in the order of commits.
 * - `delivery_limit` has the limits of a lane for all processes, and what is left of them; see `DeliveryLimitTable`.
 * - `used_at`: when a key got its last number, and when a lane started its last delivery behind a limit.
 * - `delivery_count` has the number of delivered and dead deliveries by the 5 minutes in which they were recorded, so that nothing has
 *   to read them all. The empty string stands for no value, so that a key is unique.
 * - `delivery_change`: the statements that end, revive and delete deliveries append to it. It has no index and no row that two of
 *   them write, and consumers merge it into `delivery_count`. Without a key, the rows of a published table can only be deleted if
 *   all of their columns identify them.
 * - `delivery_retention` has a row for each queue that drops payloads: the time until which those of delivered deliveries are
 *   dropped. The process that locks the row drops the next ones, so that nothing is read twice and no index is needed.
 */
function queueTables(schema: string): readonly string[] {
  return [
    `CREATE TABLE ${schema}.delivery_key (
  queue text COLLATE "C" NOT NULL,
  lane text COLLATE "C" NOT NULL,
  ordering_key text COLLATE "C" NOT NULL,
  sequence bigint NOT NULL,
  used_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (queue, lane, ordering_key)
) WITH (fillfactor = 50);`,
    `CREATE TABLE ${schema}.delivery_limit (
  queue text COLLATE "C" NOT NULL,
  lane text COLLATE "C" NOT NULL,
  concurrency integer,
  per_second double precision,
  burst double precision,
  since double precision,
  full_at double precision NOT NULL DEFAULT 0,
  token_ms double precision,
  paused_until double precision NOT NULL DEFAULT 0,
  share double precision NOT NULL DEFAULT 1,
  slowed_at double precision NOT NULL DEFAULT 0,
  running jsonb NOT NULL DEFAULT '{}',
  used_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (queue, lane)
) WITH (fillfactor = 50);`,
    `CREATE TABLE ${schema}.delivery_count (
  queue text COLLATE "C" NOT NULL,
  at timestamptz NOT NULL,
  endpoint_id text COLLATE "C" NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  receiver text COLLATE "C" NOT NULL,
  delivered bigint NOT NULL,
  dead bigint NOT NULL,
  PRIMARY KEY (queue, at, endpoint_id, tenant, receiver)
) WITH (fillfactor = 50);`,
    `CREATE TABLE ${schema}.delivery_change (
  queue text COLLATE "C" NOT NULL,
  created_at timestamptz NOT NULL,
  endpoint_id text COLLATE "C",
  tenant text COLLATE "C",
  receiver text COLLATE "C",
  delivered smallint NOT NULL,
  dead smallint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);`,
    `ALTER TABLE ${schema}.delivery_change REPLICA IDENTITY FULL;`,
    `CREATE TABLE ${schema}.delivery_retention (
  queue text COLLATE "C" PRIMARY KEY,
  payloads_until timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);`,
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

/**
 * The activity log of the endpoint store. `details` is JSON in a `text`: names of users may contain characters that `jsonb` refuses.
 */
function activityTable(schema: string): readonly string[] {
  const table = `${schema}.activity`;
  return [
    `CREATE TABLE ${table} (
  id text COLLATE "C" PRIMARY KEY,
  at timestamptz NOT NULL,
  origin text NOT NULL,
  action text COLLATE "C" NOT NULL,
  tenant text COLLATE "C",
  target text COLLATE "C",
  details text NOT NULL,
  version integer NOT NULL
);`,
    `CREATE INDEX activity_at ON ${table} (at, id);`,
    `CREATE INDEX activity_action ON ${table} (action, at, id);`,
    `CREATE INDEX activity_tenant ON ${table} (tenant, at, id) WHERE tenant IS NOT NULL;`,
    `CREATE INDEX activity_target ON ${table} (target, at, id) WHERE target IS NOT NULL;`,
  ];
}

/** All steps of the schema, in order. Append new ones. */
export function migrationSteps(schema: string): readonly MigrationStep[] {
  return [
    { version: 1, name: 'replay', statements: replayTable(schema) },
    { version: 2, name: 'endpoint', statements: endpointTable(schema) },
    { version: 3, name: 'delivery', statements: deliveryTables(schema) },
    { version: 4, name: 'queue', statements: queueTables(schema) },
    { version: 5, name: 'inbox', statements: inboxTable(schema) },
    { version: 6, name: 'activity', statements: activityTable(schema) },
  ];
}
