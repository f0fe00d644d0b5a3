/* oxlint-disable no-unused-vars -- this file is only compiled, never run */
import {
  WebhookEvent,
  type WebhookEventData,
  type WebhookEventName,
  type WebhookEventPattern,
  type WebhookEventsMatching,
  WebhookPublisher,
} from 'nestjs-webhook-token';
import { signWebhook } from 'nestjs-webhook-token/testing';
import type { ItemAdded, OrderCancelled, OrderCreated } from './event-map.js';

declare const publisher: WebhookPublisher;
declare const order: OrderCreated;
declare const cancelled: OrderCancelled;
const url = 'https://crm.example/webhooks';
const signing = { issuer: 'https://shop.example', secret: 'secret' };

export async function right(): Promise<void> {
  await publisher.publish('order.created', order);
  await publisher.publish('order.created', order, { id: 'evt-1', delay: '5s' });
  await publisher.publish('batch.done', ['a', 'b']);
  await publisher.publish('ping.sent');
  await publisher.publish('ping.sent', undefined, { id: 'evt-1' });
  await publisher.send('crm', 'order.cancelled', cancelled);
  await publisher.send(new URL(url), 'refund.paid', { refund: 'r-1' });
  await publisher.sign(url, 'order.created', order);
  await signWebhook('order.created', order, signing);
}

export async function wrong(): Promise<void> {
  // @ts-expect-error no such event
  await publisher.publish('order.creatd', order);
  // @ts-expect-error a pattern is not an event
  await publisher.publish('order.*', order);
  // @ts-expect-error data of another event
  await publisher.publish('order.created', cancelled);
  // @ts-expect-error a member is missing
  await publisher.publish('order.created', { id: 'o-1' });
  // @ts-expect-error the data is missing
  await publisher.publish('order.created');
  // @ts-expect-error the event has no data
  await publisher.publish('ping.sent', { at: 1 });
  // @ts-expect-error not a list
  await publisher.publish('batch.done', 'a');
  // @ts-expect-error data of another event
  await publisher.send('crm', 'order.created', cancelled);
  // @ts-expect-error no such event
  await publisher.send('crm', 'order.nothing', order);
  // @ts-expect-error data of another event
  await publisher.sign(url, 'order.created', cancelled);
  // @ts-expect-error data of another event
  await signWebhook('order.created', cancelled, signing);
  // @ts-expect-error no such event
  await signWebhook('order.creatd', order, signing);
}

/** `true` if the types are mutually assignable. */
type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? true : false) : false;
type All<Checks extends readonly true[]> = Checks;

export type Names = All<
  [
    Same<
      WebhookEventName,
      | 'order.created'
      | 'order.cancelled'
      | 'order.item.added'
      | 'refund.paid'
      | 'batch.done'
      | 'ping.sent'
      | 'user.joined'
      | 'price.set'
      | 'note.left'
      | 'invoice.paid'
      | 'invoice.sent'
      | 'invoice.archived'
    >,
    Same<WebhookEventsMatching<'order.created'>, 'order.created'>,
    Same<WebhookEventsMatching<'order.*'>, 'order.created' | 'order.cancelled'>,
    Same<WebhookEventsMatching<'*.created'>, 'order.created'>,
    Same<
      WebhookEventsMatching<'order.**'>,
      'order.created' | 'order.cancelled' | 'order.item.added'
    >,
    Same<WebhookEventsMatching<'**.added'>, 'order.item.added'>,
    Same<WebhookEventsMatching<'**.order.**.added'>, 'order.item.added'>,
    Same<WebhookEventsMatching<'order.*.added'>, 'order.item.added'>,
    Same<WebhookEventsMatching<'**'>, WebhookEventName>,
    Same<WebhookEventsMatching<'stock.*'>, never>,
    Same<WebhookEventsMatching<'order.created' | 'refund.*'>, 'order.created' | 'refund.paid'>,
  ]
>;

export type Data = All<
  [
    Same<WebhookEventData<'order.created'>, OrderCreated>,
    Same<WebhookEventData<'order.*'>, OrderCreated | OrderCancelled>,
    Same<WebhookEventData<'order.item.*'>, ItemAdded>,
    Same<WebhookEvent<'order.created'>['data'], OrderCreated>,
    Same<WebhookEvent<'order.*'>['event'], 'order.created' | 'order.cancelled'>,
  ]
>;

export const patterns: WebhookEventPattern[] = [
  'order.created',
  'order.*',
  '**',
  '*.paid',
  '**.added',
];
// @ts-expect-error neither an event nor a pattern
export const noPattern: WebhookEventPattern = 'order.creatd';
