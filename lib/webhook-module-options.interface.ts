import type { DynamicModule, Type } from '@nestjs/common';
import type { Duration } from './clock/duration.js';
import type { WebhookClock } from './clock/webhook-clock.js';
import type { WebhookEventCatalog } from './events/event-catalog.js';
import type { WebhookInboxOptions } from './receiver/inbox/inbox-options.js';
import type { WebhookPublisherOptions } from './publisher/publisher-options.js';
import type { WebhookReceiverOptions } from './receiver/receiver-options.js';

/** Options of the module: it receives, publishes, or both. */
export interface WebhookModuleOptions {
  /** One receiver, or several, each with its own name. */
  readonly receiver?: WebhookReceiverOptions | readonly WebhookReceiverOptions[] | undefined;
  readonly publisher?: WebhookPublisherOptions | undefined;
  /**
   * The application's events, from `defineEvents`: data is checked when it is received and when it is published, and endpoints can
   * subscribe to these events only.
   */
  readonly events?: WebhookEventCatalog | undefined;
  /** What {@link WebhookInbox} records of received requests; default: facts of the last ones, in memory. `false`: nothing. */
  readonly inbox?: WebhookInboxOptions | false | undefined;
  /**
   * Check at start-up that the replay store, the endpoint store and the inbox store can be used, and that the sealing keys decrypt
   * a stored secret, and fail otherwise; default `true`.
   */
  readonly checkStores?: boolean | undefined;
  /** How long a shutdown waits for handlers that run, default `'10s'`. */
  readonly shutdownTimeout?: Duration | undefined;
  /** The source of time; default the system clock. In tests, use `TestClock` of `./testing`. */
  readonly clock?: WebhookClock | undefined;
}

/** Options that shape the module itself, so they are needed before a factory runs. */
export interface WebhookModuleExtras {
  /** Whether other modules can inject the publisher and the guard without importing this one; default `true`. */
  readonly isGlobal?: boolean | undefined;
  /** Provides the `HttpService` that deliveries are sent with: `HttpModule.register({ … })`; default the module's own. */
  readonly httpModule?: Type | DynamicModule | undefined;
}

/** Creates the options; for `forRootAsync({ useClass })` and `useExisting`. */
export interface WebhookOptionsFactory {
  /** Called once, at start-up. */
  createWebhookOptions(): WebhookModuleOptions | Promise<WebhookModuleOptions>;
}
