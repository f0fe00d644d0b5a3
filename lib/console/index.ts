/** The delivery console and the partner portal: a page, and the JSON API behind it. */
export { WebhookConsoleModule } from './webhook-console.module.js';
export type { WebhookConsoleAsyncOptions } from './webhook-console.module.js';
export type {
  ShownPayload,
  WebhookConsoleExtras,
  WebhookConsoleOptions,
  WebhookPortalOptions,
} from './console-options.js';
export { WebhookPortal } from './webhook.portal.js';
export type { PortalLink } from './webhook.portal.js';
export type * from './console-api.js';
