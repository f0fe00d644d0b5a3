import type { StoredEndpoint } from './endpoint-store.js';
import type { WebhookEndpointView } from './webhook-endpoint.interface.js';

/** What is shown of an endpoint: all but its sealed keys. Copies, so that nobody changes what the publisher goes by. */
export function endpointView(
  endpoint: StoredEndpoint,
  source: WebhookEndpointView['source'],
): WebhookEndpointView {
  const { id, tenant, url, events, description, metadata, settings, keys, disabled } = endpoint;
  return {
    id,
    ...(tenant !== undefined && { tenant }),
    url,
    events: [...events],
    ...(description !== undefined && { description }),
    ...(metadata !== undefined && { metadata: { ...metadata } }),
    settings: {
      ...settings,
      ...(settings.headers !== undefined && { headers: { ...settings.headers } }),
    },
    keys: keys.map(({ kid, notBefore }) => ({ kid, signsFrom: new Date(notBefore) })),
    ...(disabled !== undefined && {
      disabled: { at: new Date(disabled.at), reason: disabled.reason },
    }),
    source,
    ...(source === 'store' && {
      createdAt: new Date(endpoint.createdAt),
      updatedAt: new Date(endpoint.updatedAt),
    }),
    version: endpoint.version,
  };
}
