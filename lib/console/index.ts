/** The delivery console and the partner portal: a page, and the JSON API behind it. */
export { WebhookConsoleModule } from './webhook-console.module.js';
export type { ShownPayload, WebhookAlert, WebhookConsoleOptions } from './console-options.js';
export { WebhookPortal } from './webhook.portal.js';
export type { ConsoleCapability } from './console-api.js';
/** The requests and answers of the JSON API. */
export type * as ConsoleApi from './console-api.js';
