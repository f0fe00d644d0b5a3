import { Inject, Injectable } from '@nestjs/common';
import { OnWebhookEvent, WebhookEvent } from 'nestjs-webhook-token';
import { REPLICA_NAME } from './replica-name.js';

@Injectable()
export class ParcelWebhooks {
  constructor(@Inject(REPLICA_NAME) private readonly replica: string) {}

  @OnWebhookEvent('parcel.sent')
  onSent(_data: unknown, event: WebhookEvent): void {
    console.log(`${event.id} is handled by the replica ${this.replica}`);
  }
}
