import type { IncomingMessage, ServerResponse } from 'node:http';
import { Injectable } from '@nestjs/common';
import { after, isThenable, rescued, type MaybePromise } from '../token/maybe-promise.js';
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
import { handling, observeHandler, observeReceiving, receiving } from './receiver.channels.js';
import type { ResolvedReceiver } from './receiver-options.interface.js';
import { sendAnswer } from './answers/send-answer.js';
import { requireDefinedData } from './handlers/defined-data.js';
import { WebhookDispatcher } from './handlers/webhook.dispatcher.js';
import type { QueuedEvents } from './queued/queued-events.resolver.js';
import { enqueueEvent } from './queued/received-delivery.js';
import { internalsOf, type WebhookEvent } from './webhook-event.js';
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
    const arrivedAt = receiving.now();
    try {
      const incoming = fromNodeRequest(request, bodyOf(request));
      const { answer, event, error, unhandled } = await this.answer(incoming, receiver, arrivedAt);
      // Member by member, since a spread costs more (benchmark `receive`).
      this.reporter.answered({ answer, request, receiver, event, error, arrivedAt, unhandled });
      sendAnswer(request, response, answer, { close: this.drain.closing });
    } catch (error) {
      // A bug: the sender is still answered, and the process does not crash.
      this.reporter.unanswerable(error);
      sendAnswer(request, response, refuse('handler_failed'), { close: true });
    } finally {
      this.drain.leave();
    }
  }

  /**
   * Verifies a request and reserves its event, for mounted paths and for routes of the application.
   *
   * @param arrivedAt - of `receiving.now()`
   */
  admit(
    incoming: IncomingWebhook,
    receiver: ResolvedReceiver,
    arrivedAt: number | undefined,
  ): MaybePromise<WebhookReception> {
    if (this.drain.closing) throw new WebhookException(refuse('shutting_down'));
    const admitted = this.verifier.admit(incoming, receiver);
    if (arrivedAt === undefined) return admitted;
    return after(admitted, (reception) => {
      observeReceiving(reception.event, incoming, arrivedAt);
      return reception;
    });
  }

  /**
   * Records an event as handled, before its answer is sent. An event that cannot be recorded is freed.
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
        async (error) => {
          this.reporter.unrecorded(event, outcome);
          await reception.fail();
          throw error;
        },
      ),
      (recorded) => {
        if (!recorded) this.reporter.takenOver(event);
      },
    );
  }

  /**
   * Runs the handler of a `@WebhookRoute()` and settles its event. If the sender disconnects, the handler still ends first.
   *
   * @param name - `Class.method`
   * @throws the handler's error
   */
  async runHandler(
    reception: WebhookReception,
    name: string,
    handle: () => Promise<unknown>,
  ): Promise<unknown> {
    // The sender disconnected while another guard, an interceptor or a pipe ran, and the event was left to its lease: handled
    // now, it could not be recorded, and would be handled again.
    if (!reception.unsettled) throw new WebhookException(refuse('payload_incomplete'));
    reception.begin();
    this.drain.enter();
    const { event } = reception;
    const observed = handling.isObserved ? () => observeHandler(name, event, handle) : handle;
    const operation = internalsOf(event).receiving;
    try {
      return await (operation === undefined
        ? this.settle(reception, observed)
        : operation.run(() => this.settle(reception, observed)));
    } finally {
      this.drain.leave();
    }
  }

  private async settle(
    reception: WebhookReception,
    handle: () => Promise<unknown>,
  ): Promise<unknown> {
    let value: unknown;
    try {
      value = await handle();
      reception.requireLease();
    } catch (error) {
      await reception.failHandler();
      throw error;
    }
    const completing = this.complete(reception);
    if (completing !== undefined) await completing;
    return value;
  }

  private async answer(
    incoming: IncomingWebhook,
    receiver: ResolvedReceiver,
    arrivedAt: number | undefined,
  ): Promise<Omit<AnsweredRequest, 'request'>> {
    let reception: WebhookReception | undefined;
    try {
      const admitting = this.admit(incoming, receiver, arrivedAt);
      const admitted = isThenable(admitting) ? await admitting : admitting;
      reception = admitted;
      const { event } = admitted;
      if (admitted.duplicate) return { answer: acknowledge(true), event };
      const operation = internalsOf(event).receiving;
      return operation === undefined
        ? await this.process(admitted, receiver)
        : await operation.run(() => this.process(admitted, receiver));
    } catch (error) {
      return this.failed(reception, error);
    }
  }

  /** Handles an admitted event, or enqueues it for its handlers. */
  private async process(
    reception: WebhookReception,
    receiver: ResolvedReceiver,
  ): Promise<Omit<AnsweredRequest, 'request'>> {
    const { event } = reception;
    let unhandled = false;
    try {
      if (receiver.events !== undefined) await requireDefinedData(event, receiver.events);
      if (receiver.queued !== undefined && this.dispatcher.handles(event)) {
        return { answer: await this.enqueue(reception, receiver, receiver.queued), event };
      }
      unhandled = !(await this.runHandlers(event));
      if (unhandled && receiver.unhandledEvent === 'reject') {
        throw new WebhookException(refuse('event_unhandled'));
      }
      if (unhandled) this.reporter.unhandled(event);
      reception.requireLease();
      const completing = this.complete(reception);
      if (completing !== undefined) await completing;
      return { answer: acknowledge(false), event, unhandled };
    } catch (error) {
      return { ...(await this.failed(reception, error)), unhandled };
    }
  }

  private async failed(
    reception: WebhookReception | undefined,
    thrown: unknown,
  ): Promise<Omit<AnsweredRequest, 'request'>> {
    const error = reception?.leaseLost ?? thrown;
    await reception?.fail();
    return { answer: WebhookException.answerTo(error), event: reception?.event, error };
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
  private runHandlers(event: WebhookEvent): Promise<boolean> {
    return this.dispatcher.dispatch(event).then(
      (handlers) => handlers > 0,
      (error) => {
        throw new HandlerFailure(error);
      },
    );
  }
}

/** On an Express instance that the application created, its middleware may have read the body. */
function bodyOf(request: IncomingMessage): BodySource {
  return request.readableDidRead ? { kind: 'consumed' } : { kind: 'stream', stream: request };
}
