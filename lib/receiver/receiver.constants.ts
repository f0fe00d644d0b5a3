/** Injects the resolved receivers, see {@link ResolvedReceivers}. */
export const WEBHOOK_RECEIVERS = Symbol('WEBHOOK_RECEIVERS');

/** Name of a receiver without a name. */
export const DEFAULT_RECEIVER = 'default';

/** `ExecutionContext.getType()` for the guards, pipes and interceptors of a handler. */
export const WEBHOOK_CONTEXT_TYPE = 'webhook';

/** Metadata on a method: the subscriptions of `@OnWebhookEvent`. */
export const WEBHOOK_SUBSCRIPTIONS = 'nestjs-webhook-token:subscriptions';

/** Metadata on a method: its route is a webhook route, or guarded like one. */
export const WEBHOOK_ROUTE = 'nestjs-webhook-token:route';

/** Injects {@link ReceiverShutdown}. */
export const RECEIVER_SHUTDOWN = Symbol('RECEIVER_SHUTDOWN');
