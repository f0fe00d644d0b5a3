import type { WebhookDeliveryEventType } from './webhook-delivery.events.js';

/** Metadata key of the methods that react to deliveries. */
export const DELIVERY_REACTIONS = Symbol('nestjs-webhook-token:delivery-reactions');

/**
 * Runs the method when this happens to a delivery. The method gets a {@link WebhookDeliveryEvent}. What it throws is
 * logged, and changes nothing for the delivery, which does not wait for it either.
 *
 * ```ts
 * @OnWebhookDelivery('exhausted', 'endpoint-disabled')
 * async alert(event: WebhookDeliveryEvent) {}
 * ```
 *
 * @param types - one or several; repeatable
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
