/** A health indicator for `@nestjs/terminus`. */
export { WebhookHealthIndicator } from './webhook-health.indicator.js';
export type { WebhookHealthDetails, WebhookHealthOptions } from './webhook-health.indicator.js';
