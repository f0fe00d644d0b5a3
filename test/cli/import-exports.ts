/** Exports of other products, in the shape of their answers. Ids, secrets and texts are made up. */

/** base64 of 24 bytes, as Svix generates it. */
export const SVIX_SECRET = 'whsec_c3ZpeC1zZWNyZXQtb2YtMjQtYnl0ZXMh';
export const OTHER_SECRET = 'whsec_YW5vdGhlci1zZWNyZXQtb2YtMzItYnl0ZXMtaW4tYWxs';
/** In the mode "default" of Outpost: random bytes in hex behind the prefix. */
export const HEX_SECRET = `whsec_${'0123456789abcdef'.repeat(4)}`;
/** Convoy signs with the characters. */
export const CONVOY_SECRET = 'QWbrXCtnVpLAeYKsDhZjRgUmF';
export const SECRETS = [SVIX_SECRET, OTHER_SECRET, HEX_SECRET, CONVOY_SECRET, 'c1i3nt-s3cret'];

const TIMES = { createdAt: '2026-02-03T10:00:00.000Z', updatedAt: '2026-02-03T10:00:00.000Z' };

/** An entry of an export of Svix, with the names of version 2 of its library. */
export function svixEntry(endpoint: object = {}, more: object = {}): Record<string, unknown> {
  return {
    app: { uid: 'acme', name: 'Acme', id: 'app_2y1', metadata: {}, ...TIMES },
    endpoint: {
      id: 'ep_svix',
      metadata: { plan: 'gold' },
      url: 'https://acme.example/hooks',
      description: 'Orders',
      throttleRate: null,
      uid: null,
      disabled: false,
      eventTypes: ['order.created', 'ping'],
      channels: null,
      version: 1,
      ...TIMES,
      ...endpoint,
    },
    secret: { key: SVIX_SECRET },
    headers: { headers: {}, sensitive: [] },
    ...more,
  };
}

/** A destination of Outpost. */
export function destination(changes: object = {}): Record<string, unknown> {
  return {
    id: 'des_1',
    tenant_id: 'acme',
    type: 'webhook',
    topics: ['order.created'],
    config: { url: 'https://acme.example/outpost' },
    credentials: { secret: SVIX_SECRET },
    created_at: '2026-02-15T10:00:00Z',
    updated_at: '2026-02-15T10:00:00Z',
    disabled_at: null,
    target: 'https://acme.example/outpost',
    ...changes,
  };
}

/** Client credentials of an endpoint of Convoy. */
export const CONVOY_OAUTH2 = {
  url: 'ORIGIN/token',
  authentication_type: 'shared_secret',
  client_id: 'client',
  client_secret: 'c1i3nt-s3cret',
  grant_type: 'client_credentials',
  scope: 'read:hooks',
  audience: 'https://api.example',
  field_mapping: { access_token: 'access_token', token_type: '', expires_in: 'expires_in' },
  expiry_time_unit: 'seconds',
};

/** An endpoint of Convoy, its subscription and a filter of this. */
export function convoyExport(
  endpoint: object = {},
  subscription: object = {},
  filter: object = {},
): object {
  return {
    endpoints: [
      {
        uid: '01HCONVOY',
        project_id: '01HPROJECT',
        owner_id: 'acme',
        url: 'https://acme.example/convoy',
        name: 'Acme orders',
        description: '',
        secrets: [
          { uid: 's1', value: CONVOY_SECRET, created_at: '2026-02-01T00:00:00Z', expires_at: null },
          {
            uid: 's0',
            value: 'an older secret that has expired',
            created_at: '2026-01-01T00:00:00Z',
            expires_at: '2026-02-02T00:00:00Z',
          },
        ],
        advanced_signatures: true,
        content_type: 'application/json',
        http_timeout: 10,
        rate_limit: 0,
        rate_limit_duration: 0,
        authentication: null,
        status: 'active',
        ...endpoint,
      },
    ],
    subscriptions: [
      {
        uid: '01HSUB',
        name: 'orders',
        type: 'api',
        endpoint_metadata: { uid: '01HCONVOY' },
        source_metadata: null,
        function: null,
        filter_config: {
          event_types: ['order.created', 'order.paid'],
          filter: { headers: {}, body: {} },
        },
        ...subscription,
      },
    ],
    filters: [
      {
        uid: '01HFILTER',
        subscription_id: '01HSUB',
        event_type: 'order.created',
        enabled_at: '2026-02-01T00:00:00Z',
        headers: {},
        body: {},
        query: null,
        path: {},
        ...filter,
      },
    ],
  };
}

/** The definition of the table `endpoints` of `@nestjs/webhooks`, schema version 1. */
export function officialTable(schema: string): string {
  return `CREATE SCHEMA ${schema};
CREATE TABLE ${schema}.endpoints (id text PRIMARY KEY, tenant text, url text NOT NULL, event_types jsonb NOT NULL,
  description text, enabled boolean NOT NULL, disabled_reason text, failing_since bigint, secrets jsonb NOT NULL,
  created_at bigint NOT NULL, updated_at bigint NOT NULL)`;
}
