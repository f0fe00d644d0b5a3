import type { DiscoveryService, MetadataScanner } from '@nestjs/core';
import { isObservable, lastValueFrom } from 'rxjs';
import { addRequestParameter } from '../handlers/handler-metadata.js';
import { admittedEvent, type AdapterRequest } from '../request-reception.js';
import { WebhookInterceptor } from '../webhook.interceptor.js';

/** Where Nest keeps the interceptors of a method; the last one is the innermost. */
const INTERCEPTORS = '__interceptors__';

type Method = (this: unknown, ...args: unknown[]) => unknown;
type ControllerType = abstract new (...args: never[]) => object;

/**
 * Lets the methods of `@WebhookRoute()` routes settle their events themselves, in place of {@link WebhookInterceptor}: for a single
 * interceptor, Nest builds a chain of Observables that costs as much as verifying a token (benchmark `receive`).
 *
 * If an interceptor of the application comes between, it must end before the event is recorded; such a method keeps
 * {@link WebhookInterceptor}. Called when all decorators have run, and before Nest reads the routes.
 */
export function settleInMethods(discovery: DiscoveryService, scanner: MetadataScanner): void {
  for (const { metatype } of discovery.getControllers()) {
    // A mixin or a class decorator may have put another class in its place, whose metadata Nest reads.
    if (typeof metatype !== 'function' || metatype.prototype?.constructor !== metatype) continue;
    const prototype = metatype.prototype as Record<string, Method>;
    for (const key of scanner.getAllMethodNames(prototype)) {
      const method = prototype[key];
      if (typeof method === 'function' && innermostInterceptor(method) === WebhookInterceptor) {
        Object.defineProperty(prototype, key, {
          value: settling(metatype as ControllerType, key, method),
          configurable: true,
          writable: true,
          enumerable: false,
        });
      }
    }
  }
}

function settling(type: ControllerType, key: string, method: Method): Method {
  const index = addRequestParameter(type, key, method);
  const name = `${type.name}.${method.name}`;
  const settled: Method = function (...args) {
    // Only Nest passes the request; another caller wants the method as it was written.
    const request = args[index] as AdapterRequest | undefined;
    const admitted = request && admittedEvent(request);
    if (args.length > index) args.length = index;
    if (admitted === undefined) return method.apply(this, args);
    return admitted.intake.runHandler(admitted.reception, name, async () =>
      lastValueOf(await method.apply(this, args)),
    );
  };
  Object.setPrototypeOf(settled, Object.getPrototypeOf(method) as object);
  Object.defineProperty(settled, 'name', { value: method.name, configurable: true });
  for (const entry of Reflect.getOwnMetadataKeys(method)) {
    Reflect.defineMetadata(entry, Reflect.getOwnMetadata(entry, method), settled);
  }
  Reflect.defineMetadata(INTERCEPTORS, interceptorsOf(method).slice(0, -1), settled);
  return settled;
}

/** A stream may fail after its first value. */
function lastValueOf(value: unknown): unknown {
  return isObservable(value) ? lastValueFrom(value, { defaultValue: undefined }) : value;
}

function innermostInterceptor(method: Method): unknown {
  return interceptorsOf(method).at(-1);
}

function interceptorsOf(method: Method): readonly unknown[] {
  return (Reflect.getMetadata(INTERCEPTORS, method) as readonly unknown[] | undefined) ?? [];
}
