import type { IncomingMessage, ServerResponse } from 'node:http';
import { Injectable } from '@nestjs/common';
import { after, rescued, type MaybePromise } from '../token/maybe-promise.js';
import {
  HandlerFailure,
  acknowledge,
  acknowledgeQueued,
  refuse,
  type WebhookAnswer,
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
import { enqueueEvent } from './queued/received-delivery.js';
import { WebhookException } from './answers/webhook.exception.js';
import type { WebhookEvent } from './webhook-event.js';
import type { WebhookReception } from './replay/webhook-reception.js';
import { WebhookVerifier } from './webhook.verifier.js';

/**
 * The way of a request on a mounted path, from Node's request to Node's response: let in, hand to the
 * handlers, settle, answer. No router, parser, interceptor or filter of the application lies on it.
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
      // Nothing above is meant to throw; a sender is answered all the same, and the process lives on.
      this.reporter.unanswerable(error);
      sendAnswer(request, response, refuse('handler_failed'), { close: true });
    } finally {
      this.drain.leave();
    }
  }

  /** Lets an event in on a route of the application; the shared part of both ways. */
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
    let answer: WebhookAnswer;
    let failure: unknown;
    try {
      reception = await this.admit(incoming, receiver);
      if (!reception.duplicate) unhandled = !(await this.dispatch(reception.event, receiver));
      if (unhandled && receiver.unhandledEvent === 'reject') {
        throw new WebhookException(refuse('event_unhandled'));
      }
      if (unhandled) this.reporter.unhandled(reception.event);
      reception.requireLease();
      const isQueued = !reception.duplicate && !unhandled && receiver.queued !== undefined;
      if (isQueued) await enqueueEvent(reception, receiver.queued, receiver.clock);
      await this.complete(reception, isQueued ? 'queued' : 'handled');
      answer = isQueued ? acknowledgeQueued() : acknowledge(reception.duplicate);
    } catch (error) {
      failure = reception?.leaseLost ?? error;
      await reception?.fail();
      answer = WebhookException.answerTo(failure);
    }
    return { answer, event: reception?.event, error: failure, unhandled };
  }

  /** @returns whether there is a handler for it */
  private async dispatch(event: WebhookEvent, { queued }: ResolvedReceiver): Promise<boolean> {
    if (queued !== undefined) return this.dispatcher.handles(event);
    try {
      return (await this.dispatcher.dispatch(event)) > 0;
    } catch (error) {
      throw new HandlerFailure(error);
    }
  }
}

/** Middleware ahead of ours may have read the body, on an Express instance that the application made itself. */
function bodyOf(request: IncomingMessage): BodySource {
  return request.readableDidRead ? { kind: 'consumed' } : { kind: 'stream', stream: request };
}
