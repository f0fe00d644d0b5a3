import { WebhookError } from './webhook.error.js';

/** Why an event could not be accepted for delivery. */
export type WebhookDeliveryErrorCode =
  /** The endpoint is neither configured nor a URL. */
  | 'unknown_endpoint'
  /** The delivery log knows no delivery of this id. */
  | 'unknown_delivery'
  /** The option cannot be honoured by this publisher or queue. */
  | 'unsupported_option'
  /** The option's value is wrong. */
  | 'invalid_option'
  /** The data is not JSON, or bytes came without a content type. */
  | 'invalid_data'
  /** The application is shutting down. */
  | 'shutting_down'
  /** The caller's signal was aborted. */
  | 'aborted';

/** An event was not accepted for delivery; nothing of it was recorded. */
export class WebhookDeliveryError extends WebhookError<WebhookDeliveryErrorCode> {}
