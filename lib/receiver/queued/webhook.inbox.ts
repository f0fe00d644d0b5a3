import { Inject, Injectable } from '@nestjs/common';
import type { DeadDelivery, WebhookQueue } from '../../queue/webhook-queue.js';
import type { ResolvedReceivers } from '../receiver-options.interface.js';
import { WEBHOOK_RECEIVERS } from '../receiver.constants.js';
import { WebhookVerifier } from '../webhook.verifier.js';

/**
 * The events that were acknowledged, and that no run of their handlers could handle: of receivers with
 * `acknowledge: 'queued'`. They are kept until somebody gives them another round.
 */
@Injectable()
export class WebhookInbox {
  constructor(
    @Inject(WEBHOOK_RECEIVERS) private readonly receivers: ResolvedReceivers,
    private readonly verifier: WebhookVerifier,
  ) {}

  /**
   * Lists the events that were given up, the oldest first.
   *
   * @param receiver - name of the receiver; default: all
   * @throws {@link WebhookStoreError} `store_unavailable`
   * @throws {@link WebhookConfigurationError} for a receiver that there is not
   */
  async listDead(receiver?: string): Promise<readonly DeadDelivery[]> {
    const dead = await Promise.all(this.queues(receiver).map(async (queue) => queue.listDead()));
    return dead.flat().sort((a, b) => a.diedAt - b.diedAt);
  }

  /**
   * Gives events that were given up another round, from the first run on.
   *
   * @param ids - `delivery.id` of what {@link listDead} gave
   * @returns the ids that were dead and now wait for their handlers
   * @throws {@link WebhookStoreError} `store_unavailable`, `store_full`
   */
  async retry(ids: readonly string[]): Promise<readonly string[]> {
    const retried = await Promise.all(this.queues().map(async (queue) => queue.redeliver(ids)));
    return retried.flat();
  }

  private queues(name?: string): readonly WebhookQueue[] {
    const receivers =
      name === undefined ? [...this.receivers.values()] : [this.verifier.receiver(name)];
    return receivers.flatMap(({ queued }) => queued?.queue ?? []);
  }
}
