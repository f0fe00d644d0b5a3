import type { WebhookClock } from '../clock/webhook-clock.js';
import type { WebhookSender } from '../sending/webhook.sender.js';
import type { DeliveryTarget } from '../sending/delivery-target.js';
import { deliveryTo, draftEvent } from '../sending/event-draft.js';
import type { EndpointTestResult } from './webhook-endpoint.interface.js';

const TEST_EVENT = 'webhook.test';

/** Sends test events: one request outside the queue, without effect on the endpoint's state. */
export class EndpointTester {
  constructor(
    private readonly sender: WebhookSender,
    private readonly clock: WebhookClock,
  ) {}

  async test(target: DeliveryTarget): Promise<EndpointTestResult> {
    const { tenant } = target;
    const options = tenant === undefined ? {} : { tenant };
    const draft = draftEvent(TEST_EVENT, { test: true }, options, this.clock.now());
    const { result } = await this.sender.attempt(deliveryTo(target, draft), target, 1);
    const { statusCode, durationMs } = result;
    return {
      delivered: result.outcome === 'acknowledged',
      ...(statusCode !== undefined && { statusCode }),
      durationMs,
      ...(result.outcome !== 'acknowledged' && { failureReason: result.reason }),
    };
  }
}
