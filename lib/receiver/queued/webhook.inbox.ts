import { Inject, Injectable } from '@nestjs/common';
import type { DeadDelivery, WebhookQueue } from '../../queue/webhook-queue.js';
import type { ResolvedReceivers } from '../receiver-options.interface.js';
import { WEBHOOK_RECEIVERS } from '../receiver.constants.js';
import { WebhookVerifier } from '../webhook.verifier.js';

/**
 * The dead letters of receivers with `acknowledge: 'queued'`: events that were acknowledged and whose handlers failed in every
 * run. They are kept until they are retried.
 */
@Injectable()
export class WebhookInbox {
  constructor(
    @Inject(WEBHOOK_RECEIVERS) private readonly receivers: ResolvedReceivers,
    private readonly verifier: WebhookVerifier,
  ) {}

  /**
   * Lists the dead letters, the oldest first.
   *
   * @param receiver - name of the receiver; default: all
   * @throws {@link WebhookStoreError} `store_unavailable`
   * @throws {@link WebhookConfigurationError} for an unknown receiver
   */
  async deadLetters(receiver?: string): Promise<readonly DeadDelivery[]> {
    const dead = await Promise.all(this.queues(receiver).map(async (queue) => queue.listDead()));
    return dead.flat().sort((a, b) => a.diedAt - b.diedAt);
  }

  /**
   * Runs the handlers of dead letters again, with the full number of runs.
   *
   * @param ids - `delivery.id` of {@link deadLetters}
   * @returns the ids that were dead and are now pending
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
