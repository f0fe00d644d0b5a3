/**
 * The table of the endpoint store.
 *
 * What an application writes freely is `json`, not `jsonb`: it is given back as it was, also with characters that `jsonb`
 * refuses. Sealed keys have a column of their own, so that a role that looks on can be kept from it. Lists are in the order of
 * code units, which no collation has: `code_units` are those of the id.
 */
export function endpointTable(schema: string): readonly string[] {
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
