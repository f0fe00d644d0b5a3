/** Injects the resolved receivers, see {@link ResolvedReceivers}. */
export const WEBHOOK_RECEIVERS = Symbol('WEBHOOK_RECEIVERS');

export const DEFAULT_RECEIVER = 'default';

/** `ExecutionContext.getType()` for the guards, pipes and interceptors of a handler. */
export const WEBHOOK_CONTEXT_TYPE = 'webhook';

export const RECEIVER_SHUTDOWN = Symbol('RECEIVER_SHUTDOWN');
