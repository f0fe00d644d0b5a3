import { WEBHOOK_ROUTE, WEBHOOK_SUBSCRIPTIONS } from '../receiver.constants.js';

/** Metadata of a class, by method: the parameters that `@WebhookData()` decorates. */
const DATA_PARAMETERS = 'nestjs-webhook-token:data-parameters';

interface DataParameter {
  readonly index: number;
  /** Whether a Standard Schema validates it. */
  readonly hasSchema: boolean;
}

/** Records that a parameter of a method takes event data. */
export function addDataParameter(
  target: object,
  key: string | symbol,
  parameter: DataParameter,
): void {
  const known = dataParameters(target, key);
  Reflect.defineMetadata(DATA_PARAMETERS, [...known, parameter], target.constructor, key);
}

/** The parameters of a method that take event data. */
export function dataParameters(target: object, key: string | symbol): readonly DataParameter[] {
  return (
    (Reflect.getMetadata(DATA_PARAMETERS, target.constructor, key) as
      readonly DataParameter[] | undefined) ?? []
  );
}

/**
 * Where Nest keeps the parameter decorators of a method, on its class. Nest does not export the key, and its ExternalContextCreator
 * must be passed it.
 */
export const ROUTE_ARGUMENTS = '__routeArguments__';

/** The number of parameters that have a decorator. */
export function decoratedParameters(target: object, key: string | symbol): number {
  const decorated: unknown = Reflect.getMetadata(ROUTE_ARGUMENTS, target.constructor, key);
  return Object.keys((decorated as object | undefined) ?? {}).length;
}

/** The type of a parameter, as the compiler recorded it. */
export function parameterType(target: object, key: string | symbol, index: number): unknown {
  const types: unknown = Reflect.getMetadata('design:paramtypes', target, key);
  return (types as readonly unknown[] | undefined)?.[index];
}

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
