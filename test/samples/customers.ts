import { setTimeout as pause } from 'node:timers/promises';
import { send } from '../fixtures/http-client.js';
import type { RestartedShop } from './restarted-shop.js';

const PAUSE = 20;

/** Customers who place orders one after the other, whatever the answers, until {@link leave}. */
export class Customers {
  /** Customer names by order id, for orders answered with 201. */
  readonly acknowledged = new Map<string, string>();
  /** Number of orders whose payment failed. */
  rolledBack = 0;
  /** Number of orders without either answer, which may have been committed or not. */
  unknown = 0;

  private hasClosed = false;
  private number = 0;
  private readonly ordering: Promise<unknown>;

  /**
   * @param sample - the sample to order from
   * @param count - number of concurrent customers
   */
  constructor(
    private readonly sample: RestartedShop,
    count: number,
  ) {
    this.ordering = Promise.all(Array.from({ length: count }, async () => this.order()));
  }

  /** Waits until `more` further orders are acknowledged, or a process has crashed. */
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
