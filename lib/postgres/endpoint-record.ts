import type {
  EndpointDisabledReason,
  StoredEndpoint,
} from '../endpoints/endpoint-store.js';
import type { Row } from './store-connection.js';

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
