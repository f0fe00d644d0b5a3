/* oxlint-disable no-unused-vars -- this file is only compiled, never run */
import { createParamDecorator } from '@nestjs/common';
import { Type } from 'class-transformer';
import { z } from 'zod';
import {
  OnWebhookEvent,
  WebhookContext,
  WebhookData,
  WebhookEvent,
  type WebhookEventData,
  type WebhookEventPattern,
} from 'nestjs-webhook-token';
import type { Customer, ItemAdded, OrderCancelled, OrderCreated } from './event-map.js';

/** A class of the declared shape, as class-validator needs it. */
class OrderCreatedDto implements OrderCreated {
  id!: string;
  total!: number;
}

/** A part of the declared shape is accepted. */
class OrderIdDto {
  id!: string;
}

/** The JSON has a string where the class has a Date. */
class UserJoinedDto {
  @Type(() => Date) createdAt!: Date;
  customer!: CustomerDto;
}

class CustomerDto {
  @Type(() => Date) since!: Date;
}

class Tenant {
  schemaName!: string;
}

/** A pattern that is known only at run time. */
declare const anyPattern: WebhookEventPattern;

const CurrentTenant = createParamDecorator(() => new Tenant());
const Flag = createParamDecorator(() => true);
const CoercedOrder = z.object({ id: z.coerce.number(), total: z.coerce.date() });

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

  @OnWebhookEvent('order.created')
  tenant(@WebhookData() order: OrderCreatedDto, @CurrentTenant() tenant: Tenant): void {}

  @OnWebhookEvent('order.created')
  flag(@WebhookData() order: OrderCreatedDto, @Flag() flag: boolean): void {}

  @OnWebhookEvent('order.created')
  tenantFirst(@CurrentTenant() tenant: Tenant, @WebhookData() order: OrderCreatedDto): void {}

  @OnWebhookEvent('order.created')
  flagFirst(
    @Flag() flag: boolean,
    @WebhookContext() event: WebhookEvent<'order.created'>,
    @WebhookData() order: OrderCreatedDto,
  ): void {}

  @OnWebhookEvent('user.joined')
  transformed(user: UserJoinedDto, event: WebhookEvent<'user.joined'>): void {}

  @OnWebhookEvent('user.joined')
  transformedMember(@WebhookData('customer') customer: CustomerDto): void {}

  @OnWebhookEvent('user.joined')
  objectMember(@WebhookData('customer') customer: Customer): void {}

  @OnWebhookEvent('order.created')
  coerced(@WebhookData({ schema: CoercedOrder }) order: z.infer<typeof CoercedOrder>): void {}

  @OnWebhookEvent('price.set')
  coercedText(@WebhookData({ schema: z.coerce.number() }) price: number): void {}

  @OnWebhookEvent('note.left')
  required(note: { text: string }): void {}

  @OnWebhookEvent(anyPattern)
  computed(data: unknown, event: WebhookEvent): void {}

  @OnWebhookEvent('order.created')
  optional(order?: OrderCreated, event?: WebhookEvent<'order.created'>): void {}
}

/** Accepted although they may be wrong: a pipe or schema can convert the data, and the types cannot show whether there is one. */
export class BenefitOfTheDoubt {
  @OnWebhookEvent('order.created')
  wrongMemberType(order: { id: number; total: number }): void {}

  @OnWebhookEvent('order.created')
  namesInCommon(order: OrderCancelled): void {}

  @OnWebhookEvent('order.*')
  namesInCommonWithEach(order: OrderCreated): void {}

  @OnWebhookEvent('order.created')
  laterParameter(@WebhookContext() event: WebhookEvent, @WebhookData('id') id: boolean): void {}
}

/** An event is assignable to the type of a wider pattern, but not the reverse. */
export function events(
  created: WebhookEvent<'order.created'>,
  orders: WebhookEvent<'order.*'>,
  any: WebhookEvent,
): void {
  orders = created;
  any = orders;
  const data: WebhookEventData<'**'> = any.data;
  // @ts-expect-error the event may be order.cancelled
  created = orders;
  // @ts-expect-error the event may be any event
  orders = any;
  // @ts-expect-error the data of an unknown event is not a string
  const text: string = any.data;
}

export class WrongHandlers {
  // @ts-expect-error no such event
  @OnWebhookEvent('order.creatd')
  misspelt(): void {}

  // @ts-expect-error one of the events does not exist
  @OnWebhookEvent(['order.created', 'order.nothing'])
  oneMisspelt(): void {}

  // @ts-expect-error the DTO has no member of the data
  @OnWebhookEvent('order.created')
  strangerDto(order: StrangerDto): void {}

  // @ts-expect-error one item instead of the list
  @OnWebhookEvent('batch.done')
  notAList(id: { id: string }): void {}

  // @ts-expect-error the context of another event
  @OnWebhookEvent('order.created')
  otherEvent(order: OrderCreated, event: WebhookEvent<'refund.paid'>): void {}

  // @ts-expect-error the pattern also matches events with more segments
  @OnWebhookEvent('order.**')
  onlyTheShallow(data: OrderCreated | OrderCancelled): void {}

  // @ts-expect-error no declared event has data of this type
  @OnWebhookEvent('**')
  stranger(data: StrangerDto): void {}

  // @ts-expect-error one of two possible shapes
  @OnWebhookEvent(['order.created', 'refund.paid'])
  onlyOneOfSeveral(data: OrderCreated): void {}

  // @ts-expect-error the data has no member of this type
  @OnWebhookEvent('order.created')
  wrongMember(@WebhookData('id') id: boolean): void {}

  // @ts-expect-error the context of another event, in a decorated parameter
  @OnWebhookEvent('order.created')
  otherEventFirst(@WebhookContext() event: WebhookEvent<'refund.paid'>): void {}

  // @ts-expect-error the context of another event, after a parameter of unknown type
  @OnWebhookEvent('order.created')
  otherEventLast(
    order: OrderCreatedDto,
    @CurrentTenant() tenant: Tenant,
    event: WebhookEvent<'refund.paid'>,
  ): void {}

  // @ts-expect-error only one of the events that the pattern matches
  @OnWebhookEvent('order.*')
  oneEventOfThePattern(data: unknown, event: WebhookEvent<'order.created'>): void {}

  // @ts-expect-error an optional parameter of an unrelated type
  @OnWebhookEvent('order.created')
  optionalStranger(order?: StrangerDto): void {}

  // @ts-expect-error an object where the event has no data
  @OnWebhookEvent('ping.sent')
  strangerForNothing(data: StrangerDto): void {}

  // @ts-expect-error an unrelated DTO, with the event as second parameter
  @OnWebhookEvent('order.created')
  strangerAndEvent(data: StrangerDto, event: WebhookEvent<'order.created'>): void {}

  // @ts-expect-error no declared event matches
  @OnWebhookEvent('nothing.*')
  unmatched(): void {}

  // @ts-expect-error one of the patterns matches no declared event
  @OnWebhookEvent(['order.*', '**.nothing'])
  oneUnmatched(): void {}
}
