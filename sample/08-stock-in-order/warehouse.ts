import { Injectable } from '@nestjs/common';
import { WebhookPublisher } from 'nestjs-webhook-token';

export const SKUS = ['hat', 'scarf', 'glove'];
export const HIGHEST_LEVEL = 8;

/** Sells everything it has, piece by piece. */
@Injectable()
export class Warehouse {
  constructor(private readonly publisher: WebhookPublisher) {}

  async sellOut(): Promise<void> {
    for (let level = HIGHEST_LEVEL; level >= 0; level--) {
      for (const sku of SKUS) {
        // Levels of one item arrive in this order. Other items do not wait for it.
        await this.publisher.publish('stock.changed', { sku, level }, { orderingKey: sku });
      }
    }
  }
}
