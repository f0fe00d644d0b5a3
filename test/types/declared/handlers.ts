/* oxlint-disable no-unused-vars -- what is declared here is only compiled, never run */
import {
  OnWebhookEvent,
  WebhookContext,
  WebhookData,
  WebhookEvent,
  type WebhookEventData,
} from 'nestjs-webhook-token';
import type { ItemAdded, OrderCancelled, OrderCreated } from './event-map.js';

/** As class-validator wants it: a class of the declared shape. */
class OrderCreatedDto implements OrderCreated {
  id!: string;
  total!: number;
}

/** A part of the declared shape is enough. */
class OrderIdDto {
  id!: string;
}

class StrangerDto {
  stranger!: boolean;
}

export class RightHandlers {
  @OnWebhookEvent('order.created')
  none(): void {}

  @OnWebhookEvent('order.created')
  dataOnly(order: OrderCreated): void {}

  @OnWebhookEvent('order.created')
  async dataAndEvent(order: OrderCreated, event: WebhookEvent<'order.created'>): Promise<void> {
    const total: number = event.data.total;
    const name: 'order.created' = event.event;
  }

  @OnWebhookEvent('order.created')
  dto(order: OrderCreatedDto): void {}

  @OnWebhookEvent('order.created')
  smallerDto(order: OrderIdDto): void {}

  @OnWebhookEvent('order.created')
  anything(data: unknown): void {}

  @OnWebhookEvent('order.created')
  anyEvent(order: OrderCreated, event: WebhookEvent): void {}

  @OnWebhookEvent('batch.done')
  list(ids: readonly string[]): void {}

  @OnWebhookEvent('ping.sent')
  noData(): void {}

  @OnWebhookEvent('ping.sent')
  noDataButEvent(nothing: undefined, event: WebhookEvent<'ping.sent'>): void {}

  @OnWebhookEvent('order.*')
  pattern(data: OrderCreated | OrderCancelled, event: WebhookEvent<'order.*'>): void {
    const name: 'order.created' | 'order.cancelled' = event.event;
  }

  @OnWebhookEvent('order.**')
  deepPattern(data: OrderCreated | OrderCancelled | ItemAdded): void {}

  @OnWebhookEvent('**')
  every(data: WebhookEventData<'**'>, event: WebhookEvent<'**'>): void {}

  @OnWebhookEvent(['order.created', 'refund.paid'])
  several(data: OrderCreated | { refund: string }): void {}

  @OnWebhookEvent(['order.created', 'refund.*'], { receiver: 'shop' })
  severalPatterns(data: OrderCreated | { refund: string }): void {}

  @OnWebhookEvent('order.created')
  @OnWebhookEvent('order.cancelled')
  stacked(data: OrderCreated | OrderCancelled): void {}

  @OnWebhookEvent('order.created')
  decorated(
    @WebhookContext() event: WebhookEvent<'order.created'>,
    @WebhookData() order: OrderCreated,
  ): void {}

  @OnWebhookEvent('order.created')
  member(@WebhookData('id') id: string, @WebhookData('total') total: number): void {}

  @OnWebhookEvent('order.created')
  memberAfterEvent(@WebhookContext() event: WebhookEvent, @WebhookData('id') id: string): void {}
}

/** Events of one kind are events of any kind that takes them in; never the other way round. */
export function events(
  created: WebhookEvent<'order.created'>,
  orders: WebhookEvent<'order.*'>,
  any: WebhookEvent,
): void {
  orders = created;
  any = orders;
  const data: WebhookEventData<'**'> = any.data;
  // @ts-expect-error it may have been cancelled
  created = orders;
  // @ts-expect-error it may be anything
  orders = any;
  // @ts-expect-error the data of any event is no text
  const text: string = any.data;
}

export class WrongHandlers {
  // @ts-expect-error no such event
  @OnWebhookEvent('order.creatd')
  misspelt(): void {}

  // @ts-expect-error one of the events does not exist
  @OnWebhookEvent(['order.created', 'order.nothing'])
  oneMisspelt(): void {}

  // @ts-expect-error data of another event
  @OnWebhookEvent('order.created')
  otherData(order: OrderCancelled): void {}

  // @ts-expect-error a DTO that has nothing to do with it
  @OnWebhookEvent('order.created')
  strangerDto(order: StrangerDto): void {}

  // @ts-expect-error one item instead of the list
  @OnWebhookEvent('batch.done')
  notAList(id: { id: string }): void {}

  // @ts-expect-error another event's context
  @OnWebhookEvent('order.created')
  otherEvent(order: OrderCreated, event: WebhookEvent<'refund.paid'>): void {}

  // @ts-expect-error one of two possible shapes
  @OnWebhookEvent('order.*')
  onlyOneOfThePattern(order: OrderCreated): void {}

  // @ts-expect-error two segments deep is not one
  @OnWebhookEvent('order.**')
  onlyTheShallow(data: OrderCreated | OrderCancelled): void {}

  // @ts-expect-error no declared event has data of this kind
  @OnWebhookEvent('**')
  stranger(data: StrangerDto): void {}

  // @ts-expect-error one of two possible shapes
  @OnWebhookEvent(['order.created', 'refund.paid'])
  onlyOneOfSeveral(data: OrderCreated): void {}

  // @ts-expect-error the data has no member of this type
  @OnWebhookEvent('order.created')
  wrongMember(@WebhookContext() event: WebhookEvent, @WebhookData('id') id: boolean): void {}
}
