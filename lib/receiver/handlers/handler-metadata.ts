import { WEBHOOK_ROUTE, WEBHOOK_SUBSCRIPTIONS } from '../receiver.constants.js';

/** The arguments of one `@OnWebhookEvent()`. */
interface WebhookSubscription {
  readonly patterns: readonly string[];
  /** Name of the receiver; every receiver when absent. */
  readonly receiver?: string | undefined;
}

/** The options of a webhook route. */
interface WebhookRoute {
  /** Name of the receiver; the only one, or the default one, when absent. */
  readonly receiver?: string | undefined;
}

// The metadata is on the function itself, as Nest's own, because Nest copies it to routes.

/** Adds a subscription to a method: decorators stack, so one never replaces another. */
export function addSubscription(method: object, subscription: WebhookSubscription): void {
  const known = readSubscriptions(method);
  Reflect.defineMetadata(WEBHOOK_SUBSCRIPTIONS, [...known, subscription], method);
}

/** The subscriptions of a method; empty if it is not a handler. */
export function readSubscriptions(method: object): readonly WebhookSubscription[] {
  return (
    (Reflect.getMetadata(WEBHOOK_SUBSCRIPTIONS, method) as WebhookSubscription[] | undefined) ?? []
  );
}

/** Marks a method as a route whose body is read by the webhook guard. */
export function markRoute(method: object, route: WebhookRoute): void {
  Reflect.defineMetadata(WEBHOOK_ROUTE, route, method);
}

/** The options of a webhook route; `undefined` if the method is not one. */
export function readRoute(method: object): WebhookRoute | undefined {
  return Reflect.getMetadata(WEBHOOK_ROUTE, method) as WebhookRoute | undefined;
}
