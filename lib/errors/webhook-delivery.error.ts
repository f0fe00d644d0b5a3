import type { ConfigurationFault } from './webhook-configuration.error.js';
import { WebhookError } from './webhook.error.js';

/** Why an event could not be accepted for delivery. */
export type WebhookDeliveryErrorCode =
  /** There is no such endpoint, or it is another tenant's. */
  | 'unknown_endpoint'
  /** The option cannot be honoured by this publisher or queue. */
  | 'unsupported_option'
  /** The option's value is wrong. */
  | 'invalid_option'
  /** The data is not JSON, or bytes came without a content type. */
  | 'invalid_data'
  /** The application is shutting down. */
  | 'shutting_down'
  /** The caller's signal was aborted. */
  | 'aborted'
  /** An endpoint with this id exists. */
  | 'endpoint_exists'
  /** Somebody else changed the endpoint at the same time. */
  | 'endpoint_changed';

/** An event was not accepted for delivery, or an endpoint not changed; nothing of it was recorded. */
export class WebhookDeliveryError extends WebhookError<WebhookDeliveryErrorCode> {
  /** Each member that is wrong, with its remedy; only with `invalid_option`, where an endpoint was described. */
  readonly faults?: readonly ConfigurationFault[];

  constructor(
    code: WebhookDeliveryErrorCode,
    message: string,
    options?: ErrorOptions & { faults?: readonly ConfigurationFault[] },
  ) {
    super(code, message, options?.cause === undefined ? undefined : { cause: options.cause });
    if (options?.faults !== undefined) this.faults = options.faults;
  }
}
