import { Injectable } from '@nestjs/common';
import { WebhookPublisher, type SignedWebhookRequest } from 'nestjs-webhook-token';
import { fingerprintOf } from '../fingerprint.js';
import type { Order, PublisherSkills, SentParcel, SignChoices } from '../skills.js';
import { PARCELS, type Parcel, type ParcelName } from './parcels.js';

@Injectable()
export class ParcelService implements PublisherSkills {
  constructor(private readonly publisher: WebhookPublisher) {}

  /** Calls `send` for its result. An application usually calls `publish`, which does not wait for the delivery. */
  async send(event: ParcelName): Promise<SentParcel> {
    const { data, contentType }: Parcel = PARCELS[event]();
    const options = { contentType };
    const { id, status, statusCode } = await this.publisher.send('receiver', event, data, options);
    return {
      id,
      status,
      statusCode,
      contentType: contentType ?? 'application/json',
      ...fingerprintOf(data),
    };
  }

  sign(order: Order, choices: SignChoices): Promise<SignedWebhookRequest> {
    return this.publisher.sign('receiver', 'order.created', order, choices);
  }
}
