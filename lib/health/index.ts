/** A health indicator for `@nestjs/terminus`. */
export { WebhookHealthIndicator } from './webhook-health.indicator.js';
export type { WebhookHealthDetails } from './webhook-health.indicator.js';
