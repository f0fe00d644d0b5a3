import { WebhookError } from './webhook.error.js';

/** `store_unavailable`: it cannot be reached. `store_full`: its bound is reached and nothing may be dropped. */
export type WebhookStoreErrorCode = 'store_unavailable' | 'store_full';

/** A replay store or a delivery queue cannot take more; the caller fails closed and may try again. */
export class WebhookStoreError extends WebhookError<WebhookStoreErrorCode> {}
