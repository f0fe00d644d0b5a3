import { Head, HttpCode, Post, UseFilters, UseGuards, UseInterceptors } from '@nestjs/common';
import { WebhookExceptionFilter } from '../answers/webhook-exception.filter.js';
import { markRoute } from '../handlers/webhook-subscription.js';
import { WebhookGuard } from '../webhook.guard.js';
import { WebhookInterceptor } from '../webhook.interceptor.js';

/** Where Nest keeps the parameter decorators of a method, on its class. */
const ROUTE_ARGUMENTS = '__routeArguments__';

type Method = (this: Record<string | symbol, Method>, ...args: unknown[]) => unknown;

/**
 * The method is a webhook route of its own: HEAD and POST, guarded, each event handled once, answered
 * 204 when the method's promise settles. Path parameters, versions and further decorators work as on any route.
 *
 * @param path - as for `@Post()`; default: the controller's own path
 * @param options.receiver - name of the receiver whose rules hold; default: the only one, or `'default'`
 */
export function WebhookEndpoint(
  path?: string | string[],
  options: { readonly receiver?: string | undefined } = {},
): MethodDecorator {
  return (target, key, descriptor) => {
    const method = descriptor.value as Method;
    markRoute(method, options);
    for (const decorate of [
      UseGuards(WebhookGuard),
      UseInterceptors(WebhookInterceptor),
      UseFilters(WebhookExceptionFilter),
      HttpCode(204),
      Post(path),
    ]) {
      decorate(target, key, descriptor);
    }
    addHeadTwin(target, key, method, path);
  };
}

/** A method can have one route only, so HEAD gets a method of its own that calls this one. */
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
  // Metadata is looked up along the prototype chain: what decorators further up put on the method
  // after this one has run is seen on the twin too.
  Object.setPrototypeOf(twin, method);
  const descriptor = { value: twin, configurable: true, writable: true, enumerable: false };
  Object.defineProperty(target, twinKey, descriptor);
  copyMetadata('design:paramtypes', target, key, twinKey);
  copyMetadata(ROUTE_ARGUMENTS, target.constructor, key, twinKey);
  Head(path)(target, twinKey, descriptor);
  HttpCode(204)(target, twinKey, descriptor);
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
