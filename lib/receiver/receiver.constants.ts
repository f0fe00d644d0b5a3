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

/** Metadata of a class, by method: the parameters that handlers take, in the form that Nest's ExternalContextCreator reads. */
export const HANDLER_PARAMETERS = 'nestjs-webhook-token:parameters';

export const RECEIVER_SHUTDOWN = Symbol('RECEIVER_SHUTDOWN');
