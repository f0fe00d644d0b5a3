import { Injectable, ServiceUnavailableException } from '@nestjs/common';
import { OnWebhookEvent, type WebhookEvent } from 'nestjs-webhook-token';
import type { StockChanged } from './events.js';
import { SKUS } from './warehouse.js';

/** Stores the stock levels of the warehouse, and fails every third request. */
@Injectable()
export class StockWebhooks {
  private readonly levels = new Map<string, number>();
  private readonly numbers = new Map<string, number>();
  private requests = 0;
  private failures = 0;
  private reordered = 0;
  private end: () => void = () => undefined;

  /** Resolves when everything is sold out. */
  readonly soldOut = new Promise<void>((resolve) => (this.end = resolve));

  @OnWebhookEvent('stock.changed')
  onStock({ sku, level }: StockChanged, { sequence }: WebhookEvent<'stock.changed'>): void {
    this.requests++;
    if (this.requests % 3 === 0) {
      this.failures++;
      console.log(`${sku}: the shop fails, and the level ${level} has to wait`);
      throw new ServiceUnavailableException();
    }
    const last = this.numbers.get(sku);
    if (last !== undefined && sequence !== last + 1) this.reordered++;
    this.numbers.set(sku, sequence!);
    this.levels.set(sku, level);
    console.log(`${sku}: ${level} left`);
    if (SKUS.every((one) => this.levels.get(one) === 0)) this.end();
  }

  get summary(): string {
    return `${this.requests} requests, ${this.failures} failed, ${this.reordered} levels out of order`;
  }
}
