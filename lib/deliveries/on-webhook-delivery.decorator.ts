import type { WebhookDeliveryEventType } from './webhook-delivery.events.js';

/** Metadata key of the methods that react to deliveries. */
export const DELIVERY_REACTIONS = Symbol('nestjs-webhook-token:delivery-reactions');

/**
 * Calls the method with a {@link WebhookDeliveryEvent} when an event of one of these kinds happens. The delivery does not wait
 * for the method, and an error of it is only logged.
 *
 * ```ts
 * @OnWebhookDelivery('exhausted', 'endpoint-disabled')
 * async alert(event: WebhookDeliveryEvent) {}
 * ```
 *
 * @param types - one or more; the decorator can be repeated
 */
export function OnWebhookDelivery(
  ...types: readonly [WebhookDeliveryEventType, ...WebhookDeliveryEventType[]]
): MethodDecorator {
  return (_target, _key, descriptor: PropertyDescriptor) => {
    const method = descriptor.value as object;
    const known = (Reflect.getOwnMetadata(DELIVERY_REACTIONS, method) ?? []) as readonly string[];
    Reflect.defineMetadata(DELIVERY_REACTIONS, [...known, ...types], method);
  };
}
