import type { InjectionToken } from '@nestjs/common';
import type { ModulesContainer } from '@nestjs/core';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { WebhookDeliveryEvents } from '../deliveries/webhook-delivery.events.js';
import { statsOf, type WebhookDeliveryStats } from '../deliveries/delivery-view.js';
import { EndpointRegistry } from '../endpoints/endpoint.registry.js';
import { requireReadableSecrets } from '../endpoints/secret-sealer.js';
import {
  PUBLISHER_OPTIONS,
  type ResolvedPublisherOptions,
} from '../publisher/publisher-options.resolver.js';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import { ReceiverDrain } from '../receiver/receiver.drain.js';
import { EventPoller } from '../receiver/event.poller.js';
import { type ResolvedInbox, WEBHOOK_INBOX } from '../receiver/inbox/inbox-options.js';
import type { ResolvedReceivers } from '../receiver/receiver-options.resolver.js';
import { WEBHOOK_RECEIVERS } from '../receiver/receiver.constants.js';

export interface CheckedStore {
  readonly path: string;
  /** A store that does not extend the abstract class may have no check. */
  readonly store: { check?(): void | Promise<void> };
}

/** The resolved options of a webhook module that name stores. */
export interface StoreOptions {
  readonly receivers: ResolvedReceivers;
  readonly inbox: ResolvedInbox | undefined;
  /** Absent if nothing is published. */
  readonly publisher: ResolvedPublisherOptions | undefined;
}

export function configuredStores({ receivers, inbox, publisher }: StoreOptions): CheckedStore[] {
  const stores: CheckedStore[] = [...receivers.values()].map(({ name, replayStore }) => ({
    path: `receiver "${name}".replay.store`,
    store: replayStore,
  }));
  if (inbox !== undefined) stores.push({ path: 'inbox.store', store: inbox.store });
  if (publisher === undefined) return stores;
  const { endpointStore, sealer } = publisher;
  const check = async (): Promise<void> => {
    await endpointStore.check?.();
    await requireReadableSecrets(endpointStore, sealer);
  };
  return [...stores, { path: 'publisher.endpointStore', store: { check } }];
}

/** What a webhook module of the application consists of. */
export interface WebhookParts extends StoreOptions {
  readonly drain: ReceiverDrain;
  readonly poller: EventPoller;
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
        drain: part(ReceiverDrain) as ReceiverDrain,
        poller: part(EventPoller) as EventPoller,
        publisher: part(PUBLISHER_OPTIONS) as ResolvedPublisherOptions | undefined,
        endpoints: part(EndpointRegistry) as EndpointRegistry | undefined,
        events: part(WebhookDeliveryEvents) as WebhookDeliveryEvents,
      };
    });
}

/** A queue, and whose deliveries or events in it are meant. */
export interface OwnedQueue {
  readonly owner: string;
  /** Of received events; absent for the deliveries of the publisher. */
  readonly receiver?: string;
  readonly queue: WebhookQueue;
  readonly clock: WebhookClock;
}

export function queuesOf({
  receivers,
  publisher,
}: Pick<WebhookParts, 'receivers' | 'publisher'>): readonly OwnedQueue[] {
  const queues = [...receivers.values()].flatMap(({ name, queued, clock }): OwnedQueue[] =>
    queued === undefined
      ? []
      : [{ owner: `receiver "${name}"`, receiver: name, queue: queued.queue, clock }],
  );
  if (publisher === undefined) return queues;
  const { queue, clock } = publisher;
  return [...queues, { owner: 'publisher', queue, clock }];
}

/** Counts the deliveries or received events of a queue that are not done. */
export async function readBacklog({
  queue,
  clock,
  receiver,
}: OwnedQueue): Promise<Omit<WebhookDeliveryStats, 'delivered'>> {
  return statsOf(await queue.counts({ receiver, unfinished: true }), clock.now());
}
