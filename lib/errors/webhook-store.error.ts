import { WebhookError } from './webhook.error.js';

/** Why a store does not do its part. */
export type WebhookStoreErrorCode =
  /** It cannot be reached. */
  | 'store_unavailable'
  /** Its bound is reached, and nothing may be dropped. */
  | 'store_full'
  /** The keys a token would be checked with cannot be had now. */
  | 'keys_unavailable'
  /** The secret of an endpoint cannot be opened: its sealing key is missing, or it is not what was sealed. */
  | 'sealed_secret_unreadable'
  /** What is stored of an endpoint cannot be used. */
  | 'endpoint_unreadable'
  /** Its tables are missing, or older than this version of the package: `npx nestjs-webhook-token migrate` brings them up to date. */
  | 'schema_behind'
  /** A newer version of the package has changed its tables; told by `migrate()` alone. */
  | 'schema_ahead';

/**
 * A replay store, a delivery queue, an endpoint store or a source of keys does not do its part; the caller fails
 * closed and may try again.
 */
export class WebhookStoreError extends WebhookError<WebhookStoreErrorCode> {}
