import { assignMetadata, type PipeTransform, type Type } from '@nestjs/common';
import type { WebhookEvent } from '../webhook-event.js';

/** The arguments of one `@OnWebhookEvent()`. */
interface WebhookSubscription {
  readonly patterns: readonly string[];
  /** Name of the receiver; every receiver when absent. */
  readonly receiver?: string | undefined;
}

interface WebhookRoute {
  /** Name of the receiver; the only one, or the default one, when absent. */
  readonly receiver?: string | undefined;
}

// The metadata is on the function itself, as Nest's own, because Nest copies it to routes.
const SUBSCRIPTIONS = 'nestjs-webhook-token:subscriptions';
const ROUTE = 'nestjs-webhook-token:route';

/** Metadata of a class, by method: the parameters that handlers take, in the form that Nest's ExternalContextCreator reads. */
export const HANDLER_PARAMETERS = 'nestjs-webhook-token:parameters';

/** Adds a subscription to a method: decorators stack, so one never replaces another. */
export function addSubscription(method: object, subscription: WebhookSubscription): void {
  const known = readSubscriptions(method);
  Reflect.defineMetadata(SUBSCRIPTIONS, [...known, subscription], method);
}

export function readSubscriptions(method: object): readonly WebhookSubscription[] {
  return (Reflect.getMetadata(SUBSCRIPTIONS, method) as WebhookSubscription[] | undefined) ?? [];
}

/** Marks a method as a route whose body is read by the webhook guard. */
export function markRoute(method: object, route: WebhookRoute): void {
  Reflect.defineMetadata(ROUTE, route, method);
}

export function readRoute(method: object): WebhookRoute | undefined {
  return Reflect.getMetadata(ROUTE, method) as WebhookRoute | undefined;
}

/** A parameter of a handler; `@WebhookData()` and `@WebhookContext()` record it. */
export interface HandlerParameter {
  readonly takes: 'data' | 'event';
  /** Whether it has no decorator. */
  readonly isByPosition?: boolean;
  readonly hasSchema?: boolean;
  /** The event itself, or its data, validated. */
  valueFrom(event: WebhookEvent): unknown;
}

export type HandlerPipe = Type<PipeTransform> | PipeTransform;

/** A number that Nest has for none of its own parameter decorators. */
const PARAMETER_TYPE = 100;

type Parameters = Record<string, { readonly index: number; readonly data: HandlerParameter }>;

export function addParameter(
  target: object,
  key: string | symbol,
  index: number,
  parameter: HandlerParameter,
  pipes: readonly HandlerPipe[],
): void {
  const own = Reflect.getOwnMetadata(HANDLER_PARAMETERS, target.constructor, key) as
    object | undefined;
  const all = assignMetadata(own ?? {}, PARAMETER_TYPE, index, parameter, ...pipes);
  Reflect.defineMetadata(HANDLER_PARAMETERS, all, target.constructor, key);
}

function parametersIn(metadata: unknown): Parameters[string][] {
  return Object.values((metadata as Parameters | undefined) ?? {});
}

/** What the parameters of a method take, by position. Those of a method that it overrides do not count. */
export function parametersByIndex(
  target: object,
  key: string | symbol,
): ReadonlyMap<number, HandlerParameter> {
  const own = parametersIn(Reflect.getOwnMetadata(HANDLER_PARAMETERS, target.constructor, key));
  return new Map(own.map(({ index, data }) => [index, data]));
}

/** The types of a method's parameters for data, without those that a schema validates. */
export function dataTypes(target: object, key: string | symbol): readonly unknown[] {
  const types = parameterTypes(target, key);
  return parametersIn(Reflect.getMetadata(HANDLER_PARAMETERS, target.constructor, key))
    .filter(({ data }) => data.takes === 'data' && data.hasSchema !== true)
    .map(({ index }) => types?.[index]);
}

/**
 * Whether a parameter of a method, or of one that it overrides, has a decorator: those of Nest and of other packages record their
 * metadata for the class and the name of the method, as this package does.
 */
export function hasDecoratedParameters(target: object, key: string | symbol): boolean {
  const { constructor: type } = target;
  const isOther = (name: unknown): boolean => name !== HANDLER_PARAMETERS;
  if (Reflect.getOwnMetadataKeys(type, key).some(isOther)) return true;
  const parent = Object.getPrototypeOf(type) as object;
  const inherited = parametersIn(Reflect.getMetadata(HANDLER_PARAMETERS, parent, key));
  // What Nest has for the overridden method is then this package's own.
  if (inherited.some(({ data }) => data.isByPosition === true)) return false;
  return Reflect.getMetadataKeys(parent, key).some(isOther);
}

/** The types of a method's parameters, as the compiler recorded them; `undefined` if it did not. */
export function parameterTypes(
  target: object,
  key: string | symbol,
): readonly unknown[] | undefined {
  return Reflect.getMetadata('design:paramtypes', target, key) as readonly unknown[] | undefined;
}
