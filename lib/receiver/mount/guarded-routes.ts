import type { DiscoveryService, MetadataScanner } from '@nestjs/core';
import { markRoute, readRoute } from '../handlers/webhook-subscription.js';
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
export function guardsOf(target: object): unknown[] {
  const guards = (Reflect.getMetadata(GUARDS, target) as unknown[] | undefined) ?? [];
  return guards.filter(
    (guard) =>
      guard === WebhookGuard ||
      guard instanceof WebhookGuard ||
      (typeof guard === 'function' && guard.prototype instanceof WebhookGuard),
  );
}
