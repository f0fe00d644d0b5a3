import { Head, HttpCode, Post, UseGuards, UseInterceptors } from '@nestjs/common';
import { WebhookExceptionFilter } from '../answers/webhook-exception.filter.js';
import { ROUTE_EXTENSION, WEBHOOK_SUBSCRIPTIONS } from '../receiver.constants.js';
import { markRoute, ROUTE_ARGUMENTS } from '../handlers/handler-metadata.js';
import { WebhookGuard } from '../webhook.guard.js';
import { WebhookInterceptor } from '../webhook.interceptor.js';

/** As `ApiExtension()` of @nestjs/swagger, which reads it for the operations of the route. */
const SWAGGER_EXTENSION = 'swagger/apiExtension';

/** Where Nest keeps the filters of a method; it asks the last one first. */
const FILTERS = '__exceptionFilters__';

type Method = (this: Record<string | symbol, Method>, ...args: unknown[]) => unknown;

/**
 * Makes a method a webhook route: HEAD and POST, guarded, each event handled once, answered 204 when the method's promise resolves.
 * Path parameters, versions and other decorators work as on any route.
 *
 * @param path - as for `@Post()`; default: the controller's own path
 * @param options.receiver - name of the receiver whose rules apply; default: the only one, or `'default'`
 */
export function WebhookRoute(
  path?: string | string[],
  options: { readonly receiver?: string | undefined } = {},
): MethodDecorator {
  return (target, key, descriptor) => {
    const method = descriptor.value as Method;
    markRoute(method, options);
    bindFilterBehind(method);
    markOperation(method);
    for (const decorate of [
      UseGuards(WebhookGuard),
      UseInterceptors(WebhookInterceptor),
      HttpCode(204),
      Post(path),
    ]) {
      decorate(target, key, descriptor);
    }
    addHeadTwin(target, key, method, path);
  };
}

/** Binds the catch-all filter after the method's own filters, and before those of its class and of the application. */
function bindFilterBehind(method: Method): void {
  const own = (Reflect.getMetadata(FILTERS, method) as unknown[] | undefined) ?? [];
  Reflect.defineMetadata(FILTERS, [WebhookExceptionFilter, ...own], method);
}

function markOperation(method: Method): void {
  const known = Reflect.getMetadata(SWAGGER_EXTENSION, method) as object | undefined;
  Reflect.defineMetadata(SWAGGER_EXTENSION, { ...known, [ROUTE_EXTENSION]: true }, method);
}

/** A method can have only one route, so HEAD gets a second method that calls the first. */
function addHeadTwin(
  target: object,
  key: string | symbol,
  method: Method,
  path: string | string[] | undefined,
): void {
  const twinKey = `${String(key)}:HEAD`;
  const twin: Method = function (...args) {
    return this[key]!(...args);
  };
  // Metadata is looked up along the prototype chain, so the twin also has the metadata of decorators that run later.
  Object.setPrototypeOf(twin, method);
  // Except the subscriptions: an event would be handled by the method and again by its twin.
  Reflect.defineMetadata(WEBHOOK_SUBSCRIPTIONS, [], twin);
  Object.defineProperty(twin, 'name', { value: twinName(target, key), configurable: true });
  const descriptor = { value: twin, configurable: true, writable: true, enumerable: false };
  Object.defineProperty(target, twinKey, descriptor);
  copyMetadata('design:paramtypes', target, key, twinKey);
  copyMetadata(ROUTE_ARGUMENTS, target.constructor, key, twinKey);
  Head(path)(target, twinKey, descriptor);
  HttpCode(204)(target, twinKey, descriptor);
}

/** OpenAPI takes a route's operationId from the function's name, which must be unique. */
function twinName(target: object, key: string | symbol): string {
  let name = `${typeof key === 'symbol' ? (key.description ?? '') : key}Head`;
  while (name in target) name += '_';
  return name;
}

function copyMetadata(
  name: string,
  target: object,
  from: string | symbol,
  to: string | symbol,
): void {
  const value: unknown = Reflect.getMetadata(name, target, from);
  if (value !== undefined) Reflect.defineMetadata(name, value, target, to);
}
