import { setTimeout as pause } from 'node:timers/promises';
import { send } from '../fixtures/http-client.js';
import type { RestartedShop } from './restarted-shop.js';

const PAUSE = 20;

/** Customers who place orders one after the other, whatever is answered, until they are told to go. */
export class Customers {
  /** Names of those whose order was answered 201, by the order's id. */
  readonly acknowledged = new Map<string, string>();
  /** How many were answered that the payment failed. */
  rolledBack = 0;
  /** How many had no such answer: theirs was committed, or not. */
  unknown = 0;

  private hasClosed = false;
  private number = 0;
  private readonly ordering: Promise<unknown>;

  /**
   * @param sample - whose shop they order from
   * @param count - how many of them order at a time
   */
  constructor(
    private readonly sample: RestartedShop,
    count: number,
  ) {
    this.ordering = Promise.all(Array.from({ length: count }, async () => this.order()));
  }

  /** Waits until as many orders more are acknowledged; a crash is no reason to wait for ever. */
  async place(more: number): Promise<void> {
    const enough = this.acknowledged.size + more;
    const { crashes } = this.sample;
    while (this.acknowledged.size < enough && crashes.length === 0) await pause(PAUSE);
  }

  async leave(): Promise<void> {
    this.hasClosed = true;
    await this.ordering;
  }

  private async order(): Promise<void> {
    while (!this.hasClosed) {
      const number = this.number++;
      const fails = number % 4 === 3;
      const customer = `${fails ? 'unpaid' : 'paid'}-${number}`;
      const status = await this.post(customer, fails ? '?fail=1' : '');
      if (status === 409) this.rolledBack++;
      else if (status !== 201) this.unknown++;
      await pause(status === undefined ? 5 * PAUSE : PAUSE);
    }
  }

  private async post(customer: string, query: string): Promise<number | undefined> {
    try {
      const body = JSON.stringify({ customer, total: 4200 });
      const { status, json } = await send(this.sample.originOf('shop'), {
        path: `/orders${query}`,
        body,
      });
      if (status === 201) this.acknowledged.set(json!['id'] as string, customer);
      return status;
    } catch {
      return undefined;
    }
  }
}
