import type { StoredEndpoint } from '../endpoints/endpoint-store.js';
import { millisecondsOf, timeOf } from './sql-text.js';
import type { Row } from './store-connection.js';
import type { EndpointDisabledReason } from '../sending/delivery-target.js';

/** An endpoint as the values of a statement. */
export function endpointValues(endpoint: StoredEndpoint): (string | number | null)[] {
  const { id, tenant, url, events, keys, disabled, version, createdAt, updatedAt, ...details } =
    endpoint;
  return [
    id,
    codeUnitsOf(id),
    tenant ?? null,
    url,
    JSON.stringify(events),
    JSON.stringify(details),
    JSON.stringify(keys),
    disabled?.at ?? null,
    disabled?.reason ?? null,
    version,
    createdAt,
    updatedAt,
  ];
}

export function endpointOf(row: Row): StoredEndpoint {
  const { id, tenant, url, events, details, keys, version } = row as Record<string, string>;
  const { disabled_at: at, created_at: createdAt, updated_at: updatedAt } = row;
  const reason = row['disabled_reason'] as EndpointDisabledReason;
  return {
    ...(JSON.parse(details!) as Pick<StoredEndpoint, 'settings'>),
    id: id!,
    ...(tenant !== null && { tenant: tenant! }),
    url: url!,
    events: JSON.parse(events!) as StoredEndpoint['events'],
    keys: JSON.parse(keys!) as StoredEndpoint['keys'],
    ...(at !== null && { disabled: { at: Number(at), reason } }),
    version: Number(version),
    createdAt: Number(createdAt),
    updatedAt: Number(updatedAt),
  };
}

/** The order of its octets is that of JavaScript's texts. */
export function codeUnitsOf(text: string): string {
  return Buffer.from(text, 'utf16le').swap16().toString('hex');
}

/** What a list is made of: every part left out asks for more. */
export interface EndpointListing {
  readonly tenant: 'all' | 'none' | 'one';
  readonly isBehind: boolean;
}

/**
 * The statements of the endpoint store. Each changes a row by itself, on a condition: of two at once one finds the row as the
 * other has left it.
 */
export class EndpointStatements {
  /** Values as `endpointValues` gives them; a row where the id was free. */
  readonly insert: string;

  /** Values as for `insert`; a row where the version before it was there. */
  readonly replace: string;

  /** `$1` id; a row where there was one. */
  readonly remove: string;

  /** `$1` id. */
  readonly find: string;

  private readonly select: string;

  constructor(schema: string) {
    const table = `${schema}.endpoint`;
    this.insert = `INSERT INTO ${table}
  (id, code_units, tenant, url, events, details, keys, disabled_at, disabled_reason, version, created_at, updated_at)
VALUES ($1::text, decode($2::text, 'hex'), $3::text, $4::text, $5::text::json, $6::text::json, $7::text::json,
  ${timeOf('$8')}, $9::text, $10::int, ${timeOf('$11')}, ${timeOf('$12')})
ON CONFLICT (id) DO NOTHING RETURNING id`;
    this.replace = `UPDATE ${table} SET
  code_units = decode($2::text, 'hex'), tenant = $3::text, url = $4::text, events = $5::text::json,
  details = $6::text::json, keys = $7::text::json, disabled_at = ${timeOf('$8')}, disabled_reason = $9::text,
  version = $10::int, created_at = ${timeOf('$11')}, updated_at = ${timeOf('$12')}
WHERE id = $1::text AND version = $10::int - 1 RETURNING id`;
    this.remove = `DELETE FROM ${table} WHERE id = $1::text RETURNING id`;
    // As texts, whatever the application has told its driver to make of json.
    this.select = `SELECT id, tenant, url, events::text AS events, details::text AS details, keys::text AS keys,
  ${millisecondsOf('disabled_at')} AS disabled_at, disabled_reason, version,
  ${millisecondsOf('created_at')} AS created_at, ${millisecondsOf('updated_at')} AS updated_at
FROM ${table}`;
    this.find = `${this.select} WHERE id = $1::text`;
  }

  /** `$1` tenant, where there is one: no index knows a comparison that holds for both. */
  subscribed(ofTenant: boolean): string {
    const tenant = ofTenant ? 'tenant = $1::text' : 'tenant IS NULL';
    return `${this.select} WHERE ${tenant} AND disabled_at IS NULL ORDER BY code_units`;
  }

  /** `$1` limit, then what it is behind, as hex, and the tenant, each where it is asked for. */
  list({ tenant, isBehind }: EndpointListing): string {
    const conditions = [
      ...(isBehind ? [`code_units > decode($2::text, 'hex')`] : []),
      ...(tenant === 'none' ? ['tenant IS NULL'] : []),
      ...(tenant === 'one' ? [`tenant = $${isBehind ? 3 : 2}::text`] : []),
    ];
    const where = conditions.length > 0 ? ` WHERE ${conditions.join(' AND ')}` : '';
    return `${this.select}${where} ORDER BY code_units LIMIT $1::int`;
  }
}
