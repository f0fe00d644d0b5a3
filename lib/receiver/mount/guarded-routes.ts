import type { DiscoveryService, MetadataScanner } from '@nestjs/core';
import { type ConfigurationFault, WebhookConfigurationError } from '../../errors/webhook.error.js';
import { markRoute, readRoute } from '../handlers/webhook-subscription.js';
import { WEBHOOK_ROUTE } from '../receiver.constants.js';
import { WebhookGuard } from '../webhook.guard.js';

/** Where Nest keeps the guards bound to a class or a method. */
const GUARDS = '__guards__';

/**
 * Marks the methods that have the guard by `@UseGuards(WebhookGuard)`, on themselves or on their class,
 * so that their bodies are left to it.
 *
 * A method that controllers inherit is marked only where each of them has the guard: the mark is on the
 * function, and the others' bodies are none of ours. There the guard says that it came too late.
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

/** The webhook guards bound to a class or a method: the classes, or what stands in for them. */
function guardsOf(target: object): unknown[] {
  const guards = (Reflect.getMetadata(GUARDS, target) as unknown[] | undefined) ?? [];
  return guards.filter(
    (guard) =>
      guard === WebhookGuard ||
      guard instanceof WebhookGuard ||
      (typeof guard === 'function' && guard.prototype instanceof WebhookGuard),
  );
}

/** Where Nest keeps the path of a method that is a route. */
const PATH = 'path';

type Controller = ReturnType<DiscoveryService['getControllers']>[number];

/**
 * Says which webhook routes have no receiver, by asking the guard that stands before each: which module's
 * receivers it sees is for Nest to know. Without this, every event there would be answered 500.
 */
export function unservedRoutes(
  discovery: DiscoveryService,
  scanner: MetadataScanner,
): ConfigurationFault[] {
  const faults: ConfigurationFault[] = [];
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

/** Own metadata: the twin that answers HEAD inherits it, and would be told the same. */
function isRoute(method: object): boolean {
  return Reflect.hasOwnMetadata(WEBHOOK_ROUTE, method) && Reflect.hasMetadata(PATH, method);
}

/** The guard as it will run; `undefined` where it chooses a receiver by itself, or is another one in a test. */
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
    // A guard of one request has nothing before there is one.
    (guard['verifier'] as WebhookGuard['verifier'] | undefined)?.receiver(receiver);
    return [];
  } catch (error) {
    if (!(error instanceof WebhookConfigurationError)) throw error;
    return error.faults.map(({ message }) => message);
  }
}
