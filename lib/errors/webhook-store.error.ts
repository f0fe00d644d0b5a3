import { WebhookError } from './webhook.error.js';

/**
 * `store_unavailable`: it cannot be reached. `store_full`: its bound is reached and nothing may be dropped.
 * `keys_unavailable`: the keys a token would be checked with cannot be had now. `schema_behind`: its tables are missing, or older
 * than this package; `npx nestjs-webhook-token migrate` makes them. `schema_ahead`: a newer version of the package has made them.
 */
export type WebhookStoreErrorCode =
  'store_unavailable' | 'store_full' | 'keys_unavailable' | 'schema_behind' | 'schema_ahead';

/**
 * A replay store, a delivery queue or a source of keys does not do its part; the caller fails closed and may
 * try again.
 */
export class WebhookStoreError extends WebhookError<WebhookStoreErrorCode> {}
