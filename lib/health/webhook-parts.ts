import type { InjectionToken } from '@nestjs/common';
import type { ModulesContainer } from '@nestjs/core';
import { WebhookDeliveryEvents } from '../deliveries/webhook-delivery.events.js';
import { statsOf } from '../deliveries/delivery-view.js';
import type { WebhookDeliveryStats } from '../deliveries/webhook-deliveries.interface.js';
import { EndpointRegistry } from '../endpoints/endpoint.registry.js';
import {
  PUBLISHER_OPTIONS,
  type ResolvedPublisherOptions,
} from '../publisher/publisher-options.resolver.js';
import { type ResolvedInbox, WEBHOOK_INBOX } from '../receiver/inbox/inbox-options.js';
import type { ResolvedReceivers } from '../receiver/receiver-options.interface.js';
import { WEBHOOK_RECEIVERS } from '../receiver/receiver.constants.js';
import type { StoreOptions } from './configured-stores.js';

/** What a webhook module of the application consists of. */
export interface WebhookParts extends StoreOptions {
  readonly endpoints: EndpointRegistry | undefined;
  readonly events: WebhookDeliveryEvents;
}

/** Every webhook module of an application, once its providers are created. */
export function webhookPartsOf(modules: ModulesContainer): readonly WebhookParts[] {
  return [...modules.values()]
    .filter(({ providers }) => providers.has(WEBHOOK_RECEIVERS))
    .map(({ providers }) => {
      const part = (token: InjectionToken): unknown => providers.get(token)?.instance;
      return {
        receivers: part(WEBHOOK_RECEIVERS) as ResolvedReceivers,
        inbox: part(WEBHOOK_INBOX) as ResolvedInbox | undefined,
        publisher: part(PUBLISHER_OPTIONS) as ResolvedPublisherOptions | undefined,
        endpoints: part(EndpointRegistry) as EndpointRegistry | undefined,
        events: part(WebhookDeliveryEvents) as WebhookDeliveryEvents,
      };
    });
}

/** Counts the deliveries that are not delivered. */
export async function readBacklog({
  queue,
  clock,
}: ResolvedPublisherOptions): Promise<Omit<WebhookDeliveryStats, 'delivered'>> {
  return statsOf(await queue.counts({ unfinished: true }), clock.now());
}
