import type { IncomingMessage, ServerResponse } from 'node:http';
import { Injectable } from '@nestjs/common';
import { after, rescued, type MaybePromise } from '../token/maybe-promise.js';
import {
  HandlerFailure,
  acknowledge,
  acknowledgeQueued,
  refuse,
  type WebhookAnswer,
  WebhookException,
} from './answers/webhook-answer.js';
import {
  fromNodeRequest,
  type BodySource,
  type IncomingWebhook,
} from '../request/incoming-webhook.js';
import { ReceiverDrain } from './receiver.drain.js';
import { ReceiverReporter, type AnsweredRequest } from './receiver.reporter.js';
import type { ResolvedReceiver } from './receiver-options.interface.js';
import { sendAnswer } from './answers/send-answer.js';
import { WebhookDispatcher } from './handlers/webhook.dispatcher.js';
import type { QueuedEvents } from './queued/queued-events.resolver.js';
import { enqueueEvent } from './queued/received-delivery.js';
import type { WebhookEvent } from './webhook-event.js';
import type { WebhookReception } from './replay/webhook-reception.js';
import { WebhookVerifier } from './webhook.verifier.js';

/**
 * Handles a request on a mounted path: admit its event, run its handlers, record it, answer. No router, parser, interceptor or
 * filter of the application is involved.
 */
@Injectable()
export class WebhookIntake {
  constructor(
    private readonly verifier: WebhookVerifier,
    private readonly dispatcher: WebhookDispatcher,
    private readonly drain: ReceiverDrain,
    private readonly reporter: ReceiverReporter,
  ) {}

  /** Answers a request; never rejects. */
  async handle(
    request: IncomingMessage,
    response: ServerResponse,
    receiver: ResolvedReceiver,
  ): Promise<void> {
    this.drain.enter();
    try {
      const outcome = await this.answer(fromNodeRequest(request, bodyOf(request)), receiver);
      this.reporter.answered({ ...outcome, request, receiver });
      sendAnswer(request, response, outcome.answer, { close: this.drain.closing });
    } catch (error) {
      // A bug: the sender is still answered, and the process does not crash.
      this.reporter.unanswerable(error);
      sendAnswer(request, response, refuse('handler_failed'), { close: true });
    } finally {
      this.drain.leave();
    }
  }

  /** Verifies a request and reserves its event, for mounted paths and for routes of the application. */
  admit(incoming: IncomingWebhook, receiver: ResolvedReceiver): MaybePromise<WebhookReception> {
    if (this.drain.closing) throw new WebhookException(refuse('shutting_down'));
    return this.verifier.admit(incoming, receiver);
  }

  /**
   * Records an event as handled, before its answer is sent.
   *
   * @throws {@link WebhookStoreError} if it cannot be recorded: the sender then gets 503 and repeats it
   */
  complete(
    reception: WebhookReception,
    outcome: 'handled' | 'queued' = 'handled',
  ): MaybePromise<void> {
    const { event } = reception;
    return after(
      rescued(
        () => reception.complete(),
        (error) => {
          this.reporter.unrecorded(event, outcome);
          throw error;
        },
      ),
      (recorded) => {
        if (!recorded) this.reporter.takenOver(event);
      },
    );
  }

  private async answer(
    incoming: IncomingWebhook,
    receiver: ResolvedReceiver,
  ): Promise<Omit<AnsweredRequest, 'request'>> {
    let reception: WebhookReception | undefined;
    let unhandled = false;
    try {
      reception = await this.admit(incoming, receiver);
      const { event } = reception;
      if (reception.duplicate) return { answer: acknowledge(true), event };
      if (receiver.queued !== undefined && this.dispatcher.handles(event)) {
        return { answer: await this.enqueue(reception, receiver, receiver.queued), event };
      }
      unhandled = !(await this.runHandlers(event));
      if (unhandled && receiver.unhandledEvent === 'reject') {
        throw new WebhookException(refuse('event_unhandled'));
      }
      if (unhandled) this.reporter.unhandled(event);
      reception.requireLease();
      await this.complete(reception);
      return { answer: acknowledge(false), event, unhandled };
    } catch (thrown) {
      const error = reception?.leaseLost ?? thrown;
      await reception?.fail();
      return {
        answer: WebhookException.answerTo(error),
        event: reception?.event,
        error,
        unhandled,
      };
    }
  }

  private async enqueue(
    reception: WebhookReception,
    { clock }: ResolvedReceiver,
    queued: QueuedEvents,
  ): Promise<WebhookAnswer> {
    await enqueueEvent(reception, queued, clock);
    await this.complete(reception, 'queued');
    return acknowledgeQueued();
  }

  /** @returns whether the event has a handler */
  private async runHandlers(event: WebhookEvent): Promise<boolean> {
    try {
      return (await this.dispatcher.dispatch(event)) > 0;
    } catch (error) {
      throw new HandlerFailure(error);
    }
  }
}

/** On an Express instance that the application created, its middleware may have read the body. */
function bodyOf(request: IncomingMessage): BodySource {
  return request.readableDidRead ? { kind: 'consumed' } : { kind: 'stream', stream: request };
}
