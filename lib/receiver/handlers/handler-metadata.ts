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

/** Where Nest keeps the parameter decorators of a method, on its class. */
export const ROUTE_ARGUMENTS = '__routeArguments__';

/** The number of parameters that have a decorator. */
export function decoratedParameters(target: object, key: string | symbol): number {
  const decorated: unknown = Reflect.getMetadata(ROUTE_ARGUMENTS, target.constructor, key);
  return Object.keys((decorated as object | undefined) ?? {}).length;
}

/** Nest's number for the parameter of `@Req()`. */
export const REQUEST_PARAMETER = 0;

/**
 * Adds a parameter for the request behind all others of a method, without a decorator.
 *
 * @returns its index
 */
export function addRequestParameter(
  type: object,
  key: string,
  method: (...args: never[]) => unknown,
): number {
  const known = (Reflect.getMetadata(ROUTE_ARGUMENTS, type, key) ?? {}) as Readonly<
    Record<string, { readonly index: number }>
  >;
  const index = Math.max(method.length, ...Object.values(known).map((one) => one.index + 1));
  const added = { ...known, [`${REQUEST_PARAMETER}:${index}`]: { index, pipes: [] } };
  Reflect.defineMetadata(ROUTE_ARGUMENTS, added, type, key);
  return index;
}

/** Metadata of a class, by method: the number of parameters that take data and event by position. */
const BY_POSITION = 'nestjs-webhook-token:by-position';

/** Records that all parameters of a method take data and event by position. */
export function markByPosition(target: object, key: string | symbol): void {
  Reflect.defineMetadata(BY_POSITION, decoratedParameters(target, key), target.constructor, key);
}

/** Whether a method takes data, or data and event, by position, and no decorator was added since. */
export function takesByPosition(target: object, key: string | symbol): boolean {
  const count = Reflect.getMetadata(BY_POSITION, target.constructor, key) as number | undefined;
  return count !== undefined && count > 0 && count === decoratedParameters(target, key);
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
