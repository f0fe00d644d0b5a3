/**
 * The tables of the delivery log: deliveries, and the attempts of each.
 *
 * A page is read from one end of an index, whichever of tenant, endpoint and status is asked for. Most deliveries are
 * delivered: an index over the others is small.
 */
export function deliveryTables(schema: string): readonly string[] {
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
