import type {
  ResolvedEndpoint,
  ResolvedDestination,
} from '../publisher/options/publisher-options.interface.js';
import type { StoredEndpoint, StoredEndpointSettings } from './endpoint-store.js';

const SETTINGS = [
  'method',
  'profile',
  'hash',
  'jti',
  'timeout',
  'headers',
  'audience',
  'subject',
] as const satisfies (keyof StoredEndpointSettings)[];

/**
 * A configured endpoint as a store would give it: without its keys, which are not this process's to tell.
 *
 * @param since - when it was configured, epoch milliseconds
 */
export function storedOfConfigured(
  endpoint: ResolvedEndpoint,
  defaults: ResolvedDestination,
  since: number,
): StoredEndpoint {
  const { id, tenant, url, events } = endpoint;
  const own = SETTINGS.filter((name) => endpoint[name] !== defaults[name]);
  return {
    id,
    ...(tenant !== undefined && { tenant }),
    url,
    events,
    settings: Object.fromEntries(own.map((name) => [name, endpoint[name]])),
    keys: [],
    version: 1,
    createdAt: since,
    updatedAt: since,
  };
}
