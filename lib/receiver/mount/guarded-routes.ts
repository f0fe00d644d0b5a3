import type { DiscoveryService, MetadataScanner } from '@nestjs/core';
import {
  type ConfigurationProblem,
  WebhookConfigurationError,
} from '../../errors/webhook.error.js';
import { markRoute, readRoute } from '../handlers/handler-metadata.js';
import { WEBHOOK_ROUTE } from '../receiver.constants.js';
import { WebhookGuard } from '../webhook.guard.js';

/** Where Nest keeps the guards bound to a class or a method. */
const GUARDS = '__guards__';

/**
 * Marks the methods that have `@UseGuards(WebhookGuard)`, on themselves or on their class, so that their bodies are left to the
 * guard.
 *
 * A method that several controllers inherit is marked only if all of them have the guard, because the mark is on the shared
 * function. Otherwise the guard answers that the body was consumed.
 */
export function markGuardedRoutes(discovery: DiscoveryService, scanner: MetadataScanner): void {
  const guardedEverywhere = new Map<object, boolean>();
  for (const { metatype } of discovery.getControllers()) {
    if (typeof metatype !== 'function') continue;
    const prototype = metatype.prototype as Record<string, unknown>;
    const classGuarded = hasGuard(metatype);
    for (const name of scanner.getAllMethodNames(prototype)) {
      const method = prototype[name];
      if (typeof method !== 'function') continue;
      const guarded = classGuarded || hasGuard(method);
      guardedEverywhere.set(method, guarded && (guardedEverywhere.get(method) ?? true));
    }
  }
  for (const [method, guarded] of guardedEverywhere) {
    if (guarded && readRoute(method) === undefined) markRoute(method, {});
  }
}

function hasGuard(target: object): boolean {
  return guardsOf(target).length > 0;
}

/** The webhook guards bound to a class or a method: classes or instances. */
function guardsOf(target: object): unknown[] {
  const guards = (Reflect.getMetadata(GUARDS, target) as unknown[] | undefined) ?? [];
  return guards.filter(
    (guard) =>
      guard === WebhookGuard ||
      guard instanceof WebhookGuard ||
      (typeof guard === 'function' && guard.prototype instanceof WebhookGuard),
  );
}

/** Where Nest keeps the path of a route's method. */
const PATH = 'path';

type Controller = ReturnType<DiscoveryService['getControllers']>[number];

/**
 * Finds webhook routes without a receiver, on which every event would be answered 500. It asks the guard of each route, since only
 * Nest knows which module's receivers are injected there.
 */
export function routesWithoutReceiver(
  discovery: DiscoveryService,
  scanner: MetadataScanner,
): ConfigurationProblem[] {
  const faults: ConfigurationProblem[] = [];
  for (const controller of discovery.getControllers()) {
    const { metatype } = controller;
    if (typeof metatype !== 'function') continue;
    const prototype = metatype.prototype as Record<string, unknown>;
    for (const name of scanner.getAllMethodNames(prototype)) {
      const method = prototype[name];
      if (typeof method !== 'function' || !isRoute(method)) continue;
      const guard = [...guardsOf(metatype), ...guardsOf(method)]
        .map((one) => instanceOf(one, controller))
        .find((one) => one !== undefined);
      if (guard === undefined) continue;
      for (const message of receiverFaults(guard, readRoute(method)?.receiver)) {
        faults.push({ path: `${controller.name}.${name}`, message });
      }
    }
  }
  return faults;
}

/** Own metadata only: the method for HEAD inherits it, and would be reported twice. */
function isRoute(method: object): boolean {
  return Reflect.hasOwnMetadata(WEBHOOK_ROUTE, method) && Reflect.hasMetadata(PATH, method);
}

/** The guard's instance; `undefined` if it overrides `receiverName`, or a test replaced it. */
function instanceOf(guard: unknown, { host }: Controller): WebhookGuard | undefined {
  const instance: unknown =
    typeof guard === 'function'
      ? host?.injectables.get(guard as typeof WebhookGuard)?.instance
      : guard;
  if (!(instance instanceof WebhookGuard)) return undefined;
  return instance['receiverName'] === WebhookGuard.prototype['receiverName'] ? instance : undefined;
}

function receiverFaults(guard: WebhookGuard, receiver: string | undefined): string[] {
  try {
    // A request-scoped guard has no dependencies before the first request.
    (guard['verifier'] as WebhookGuard['verifier'] | undefined)?.receiver(receiver);
    return [];
  } catch (error) {
    if (!(error instanceof WebhookConfigurationError)) throw error;
    return error.problems.map(({ message }) => message);
  }
}
