import {
  Catch,
  HttpStatus,
  Logger,
  type ArgumentsHost,
  type ExceptionFilter,
} from '@nestjs/common';
import { STATUS_CODES } from 'node:http';
import {
  WebhookDeliveryError,
  WebhookDestinationBlockedError,
  WebhookSigningError,
  WebhookStoreError,
  type WebhookError,
} from '../errors/webhook.error.js';

/** Codes that are not listed are problems of the application or its configuration: 500. */
const STATUSES: Readonly<Record<string, HttpStatus>> = {
  invalid_data: HttpStatus.BAD_REQUEST,
  invalid_option: HttpStatus.BAD_REQUEST,
  destination_blocked: HttpStatus.BAD_REQUEST,
  unknown_event: HttpStatus.BAD_REQUEST,
  unknown_endpoint: HttpStatus.NOT_FOUND,
  unknown_delivery: HttpStatus.NOT_FOUND,
  id_conflict: HttpStatus.CONFLICT,
  endpoint_exists: HttpStatus.CONFLICT,
  endpoint_changed: HttpStatus.CONFLICT,
  limit_reached: HttpStatus.TOO_MANY_REQUESTS,
  aborted: HttpStatus.SERVICE_UNAVAILABLE,
  shutting_down: HttpStatus.SERVICE_UNAVAILABLE,
  store_unavailable: HttpStatus.SERVICE_UNAVAILABLE,
  store_full: HttpStatus.SERVICE_UNAVAILABLE,
  keys_unavailable: HttpStatus.SERVICE_UNAVAILABLE,
  signing_failed: HttpStatus.SERVICE_UNAVAILABLE,
  no_signing_key: HttpStatus.SERVICE_UNAVAILABLE,
};

/** The methods that the responses of Express and Fastify share. */
interface HttpResponse {
  status(code: number): this;
  type(contentType: string): this;
  send(body: string): unknown;
}

/**
 * Answers the errors of the publisher, its endpoints and its deliveries in your controllers: with the status that fits the code, as
 * `application/problem+json` (RFC 9457).
 *
 * ```ts
 * providers: [{ provide: APP_FILTER, useClass: WebhookErrorFilter }]
 * ```
 */
@Catch(WebhookDeliveryError, WebhookStoreError, WebhookSigningError, WebhookDestinationBlockedError)
export class WebhookErrorFilter implements ExceptionFilter<WebhookError> {
  private readonly logger = new Logger(WebhookErrorFilter.name);

  catch(error: WebhookError, host: ArgumentsHost): void {
    // Other transports have filters of their own.
    if (host.getType() !== 'http') throw error;
    const { code, message } = error;
    const status = STATUSES[code] ?? HttpStatus.INTERNAL_SERVER_ERROR;
    const isServerError = status >= HttpStatus.INTERNAL_SERVER_ERROR;
    if (isServerError) this.logger.error(`${code}: ${message}`, error.stack);
    const { problems } = error as Partial<WebhookDeliveryError>;
    const problem = {
      type: 'about:blank',
      title: STATUS_CODES[status],
      status,
      code,
      // The message of a server error may name hosts of the internal network.
      ...(!isServerError && { detail: message, ...(problems !== undefined && { problems }) }),
    };
    host
      .switchToHttp()
      .getResponse<HttpResponse>()
      .status(status)
      .type('application/problem+json')
      .send(JSON.stringify(problem));
  }
}
