/** Traces and metrics with OpenTelemetry. */
export { WebhookTelemetryModule } from './webhook-telemetry.module.js';
