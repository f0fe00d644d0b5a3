import type { DiscoveryService, MetadataScanner } from '@nestjs/core';
import {
  WebhookConfigurationError,
  type ConfigurationFault,
} from '../../errors/webhook-configuration.error.js';
import { readRoute } from '../handlers/webhook-subscription.js';
import { WEBHOOK_ROUTE } from '../receiver.constants.js';
import { WebhookGuard } from '../webhook.guard.js';
import { guardsOf } from './guarded-routes.js';

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
