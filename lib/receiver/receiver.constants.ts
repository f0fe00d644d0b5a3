/** Injects the resolved receivers, see {@link ResolvedReceivers}. */
export const WEBHOOK_RECEIVERS = Symbol('WEBHOOK_RECEIVERS');

/** Name of the receiver that is meant where none is named. */
export const DEFAULT_RECEIVER = 'default';

/** Type of the `ExecutionContext` a handler's own guards, pipes and interceptors see. */
export const WEBHOOK_CONTEXT_TYPE = 'webhook';

/** Metadata on a method: the subscriptions of `@OnWebhookEvent`. */
export const WEBHOOK_SUBSCRIPTIONS = 'nestjs-webhook-token:subscriptions';

/** Metadata on a method: its route is a webhook endpoint, or guarded like one. */
export const WEBHOOK_ROUTE = 'nestjs-webhook-token:route';

/** Injects how a shutdown waits, see {@link ReceiverShutdown}. */
export const RECEIVER_SHUTDOWN = Symbol('RECEIVER_SHUTDOWN');
