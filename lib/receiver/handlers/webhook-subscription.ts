import { WEBHOOK_ROUTE, WEBHOOK_SUBSCRIPTIONS } from '../receiver.constants.js';

/** What one `@OnWebhookEvent` says. */
interface WebhookSubscription {
  readonly patterns: readonly string[];
  /** Name of the receiver; every receiver when absent. */
  readonly receiver?: string | undefined;
}

/** What a guarded route says. */
interface WebhookRoute {
  /** Name of the receiver; the only one, or the default one, when absent. */
  readonly receiver?: string | undefined;
}

// A method is its function here: that is where Nest's own method metadata lives, and what it copies to routes.

/** Adds a subscription to a method: decorators stack, so one never replaces another. */
export function addSubscription(method: object, subscription: WebhookSubscription): void {
  const known = readSubscriptions(method);
  Reflect.defineMetadata(WEBHOOK_SUBSCRIPTIONS, [...known, subscription], method);
}

/** The subscriptions of a method; none for one that is no handler. */
export function readSubscriptions(method: object): readonly WebhookSubscription[] {
  return (
    (Reflect.getMetadata(WEBHOOK_SUBSCRIPTIONS, method) as WebhookSubscription[] | undefined) ?? []
  );
}

/** Marks a method as a route whose body belongs to the webhook guard. */
export function markRoute(method: object, route: WebhookRoute): void {
  Reflect.defineMetadata(WEBHOOK_ROUTE, route, method);
}

/** What a method says as a route; `undefined` for one that is none. */
export function readRoute(method: object): WebhookRoute | undefined {
  return Reflect.getMetadata(WEBHOOK_ROUTE, method) as WebhookRoute | undefined;
}
