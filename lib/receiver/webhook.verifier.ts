import { Inject, Injectable } from '@nestjs/common';
import { WebhookPayloadError } from '../errors/webhook.error.js';
import { constraintsOf } from '../events/event-catalog.js';
import { explainRequest } from '../explain/explain-request.js';
import type { WebhookExplanation } from '../explain/webhook-explanation.interface.js';
import { fromRequestLike, type WebhookRequestLike } from '../request/request-like.js';
import {
  findReceiver,
  type ResolvedReceiver,
  type ResolvedReceivers,
} from './receiver-options.resolver.js';
import { definedDataIssues } from './handlers/payload-validator.js';
import { WEBHOOK_RECEIVERS } from './receiver.constants.js';
import { ReceiverDrain } from './receiver.drain.js';
import { ReceivePipeline } from './receive.js';
import { replayed } from './reception.js';
import type { WebhookEvent } from './webhook-event.js';

/** Verifies requests that did not arrive on a route of this application: from a queue, a serverless event, a test. */
@Injectable()
export class WebhookVerifier {
  constructor(
    @Inject(WEBHOOK_RECEIVERS) private readonly receivers: ResolvedReceivers,
    private readonly pipeline: ReceivePipeline,
    private readonly drain: ReceiverDrain,
  ) {}

  /**
   * Verifies a request and handles its event once.
   *
   * The event counts as handled when this resolves. Pass `handle` to free the event for another attempt if handling fails: it
   * runs while the event is reserved, and may call `event.commit(tx)`.
   *
   * @param options.receiver - name of the receiver whose rules apply; default: the only one, or `'default'`
   * @param options.handle - handles the event
   * @throws {@link WebhookTokenError}, {@link WebhookPayloadError}, {@link WebhookStoreError};
   *   {@link WebhookReplayError} also for a copy of an event that was handled before
   */
  async verify(
    request: WebhookRequestLike,
    options: {
      readonly receiver?: string | undefined;
      readonly handle?: ((event: WebhookEvent) => unknown) | undefined;
    } = {},
  ): Promise<WebhookEvent> {
    const receiver = this.receiver(options.receiver);
    // Without a handler, it is unknown when a spooled body may be removed, so it is kept in memory.
    const spool = options.handle === undefined ? undefined : receiver.spool;
    this.drain.enter();
    try {
      const reception = await this.pipeline.admit(fromRequestLike(request), { ...receiver, spool });
      if (reception.duplicate) throw replayed();
      const { event } = reception;
      await reception.handle(async () => {
        await requireDefined(event, receiver);
        await options.handle?.(event);
      });
      return event;
    } finally {
      this.drain.leave();
    }
  }

  /**
   * Explains step by step why {@link verify} accepts or refuses a request, and what can be observed of the cause.
   *
   * Nothing is reserved or handled, so it does not check for a duplicate. A body that is a stream is read. The result is for
   * operators: do not send it to a sender, whom it could help to forge a token.
   *
   * @param options.receiver - name of the receiver whose rules apply; default: the only one, or `'default'`
   * @returns plain JSON without secret, token and payload
   * @throws {@link WebhookConfigurationError} for an unknown receiver; a bad request does not throw
   */
  async explain(
    request: WebhookRequestLike,
    options: { readonly receiver?: string | undefined } = {},
  ): Promise<WebhookExplanation> {
    const receivers = this.receivers.values();
    const receiver = this.receiver(options.receiver);
    return explainRequest(fromRequestLike(request), { ...receiver, receivers });
  }

  /**
   * Finds a receiver by its name.
   *
   * @param name - default: the only receiver, or the one named `'default'`
   * @throws {@link WebhookConfigurationError}
   */
  receiver(name?: string): ResolvedReceiver {
    return findReceiver(this.receivers, name);
  }
}

/** @throws {@link WebhookPayloadError} `invalid_payload` */
async function requireDefined(event: WebhookEvent, { events }: ResolvedReceiver): Promise<void> {
  const issues = await definedDataIssues(event, events);
  if (issues.length === 0) return;
  throw new WebhookPayloadError(
    'invalid_payload',
    `the data is not valid data of ${event.event}: ${constraintsOf(issues)}`,
  );
}
