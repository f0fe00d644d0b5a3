import type { DynamicModule, Type } from '@nestjs/common';
import type { Duration } from './clock/duration.js';
import type { WebhookClock } from './clock/webhook-clock.js';
import type { WebhookPublisherOptions } from './publisher/publisher-options.interface.js';
import type { WebhookReceiverOptions } from './receiver/receiver-options.interface.js';

/** What the module does: receive, publish, or both. */
export interface WebhookModuleOptions {
  /** One receiver, or several with a name each. */
  readonly receiver?: WebhookReceiverOptions | readonly WebhookReceiverOptions[] | undefined;
  readonly publisher?: WebhookPublisherOptions | undefined;
  /**
   * Check at start-up that the replay store, the endpoint store and the delivery log can be used, and fail if one cannot;
   * default `true`.
   */
  readonly checkStores?: boolean | undefined;
  /** How long a shutdown waits for handlers that run, as milliseconds or text; default `'10s'`. */
  readonly shutdownTimeout?: Duration | undefined;
  /** Where the time comes from; default the machine's clock. For tests: `TestClock` of `./testing`. */
  readonly clock?: WebhookClock | undefined;
}

/** What must be known before the options are, as it shapes the module itself. */
export interface WebhookModuleExtras {
  /** Whether other modules see the publisher and the guard without importing this one; default `true`. */
  readonly isGlobal?: boolean | undefined;
  /** Provides the `HttpService` that deliveries are sent with: `HttpModule.register({ … })`; default the plain `HttpModule`. */
  readonly httpModule?: Type | DynamicModule | undefined;
}

/** Makes the options; for `forRootAsync({ useClass })` and `useExisting`. */
export interface WebhookOptionsFactory {
  /** Called once, at start-up. */
  createWebhookOptions(): WebhookModuleOptions | Promise<WebhookModuleOptions>;
}
