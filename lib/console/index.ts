/** The delivery console and the partner portal: a page, and the JSON API behind it. */
export { WebhookConsoleModule } from './webhook-console.module.js';
export type { WebhookConsoleAsyncOptions } from './webhook-console.module.js';
export type {
  ShownPayload,
  ConsoleActivityOptions,
  WebhookConsoleExtras,
  WebhookConsoleOptions,
  WebhookPortalOptions,
} from './console-options.js';
export type { WebhookAlert, WebhookAlertOptions } from './webhook-alert.interface.js';
export { WebhookPortal } from './webhook.portal.js';
export type { PortalLink } from './webhook.portal.js';
export type { ConsoleCapability, PortalCapability } from './console-api.js';
/** The requests and answers of the JSON API. */
export type * as ConsoleApi from './console-api.js';
