import type { IncomingMessage, ServerResponse } from 'node:http';
import { Injectable } from '@nestjs/common';
import {
  acknowledge,
  answerChallenge,
  refuse,
  type WebhookAnswer,
} from '../request/webhook-answers.js';
import type { IncomingWebhook, SenderAnswer, VerifiedBatch } from '../request/webhook-scheme.js';
import { answerTo, HandlerFailure, WebhookException } from './error-answers.js';
import { requireDefinedData } from './handlers/payload-validator.js';
import { WebhookDispatcher, type WebhookHandler } from './handlers/webhook.dispatcher.js';
import { bodyOf, fromNodeRequest, type RequestHead, sendAnswer } from './node-http.js';
import { enqueueEvent } from './queued/received-delivery.js';
import { observeReceiving, receiving } from './receiver.channels.js';
import { ReceiverDrain } from './receiver.drain.js';
import type { ResolvedReceiver } from './receiver-options.resolver.js';
import { ReceiverReporter, type AnsweredRequest } from './receiver.reporter.js';
import { reserveEvent, WebhookReception } from './reception.js';
import { EventInternals, WebhookEvent } from './webhook-event.js';

/** How a request was received; the caller adds the request. */
type Received = Omit<AnsweredRequest, 'request'>;

/** The answer to a request. */
interface ReceivedAnswer {
  readonly answer: WebhookAnswer;
  /** In the form that the sender's standard names, if it names one. */
  readonly own: SenderAnswer | undefined;
}

/** What a scheme has verified: an event, or why an item of a request is none. */
type Verified = VerifiedBatch['batch'][number];

interface Arrival {
  readonly incoming: IncomingWebhook;
  readonly receiver: ResolvedReceiver;
  /** Of `receiving.now()`. */
  readonly arrivedAt: number | undefined;
}

/**
 * The path of a received event: verify → reserve → handle → settle → answer.
 *
 * A mounted path takes all of it, by {@link answer}. `@WebhookRoute()` and `WebhookVerifier.verify()` take {@link admit}, and pass
 * their own handler to the reception; events that are polled take {@link answerOf}; the worker of a queue continues with a reception that
 * it has restored.
 */
@Injectable()
export class ReceivePipeline {
  constructor(
    private readonly dispatcher: WebhookDispatcher,
    private readonly drain: ReceiverDrain,
    private readonly reporter: ReceiverReporter,
  ) {}

  /** Answers a request on a mounted path; never rejects. */
  async answer(
    request: IncomingMessage,
    response: ServerResponse,
    receiver: ResolvedReceiver,
  ): Promise<void> {
    this.drain.enter();
    try {
      const body = bodyOf(request) ?? { kind: 'stream', stream: request };
      const incoming = fromNodeRequest(request, body);
      const answer = formed(await this.answerOf(incoming, request, receiver));
      sendAnswer(request, response, answer, { close: this.drain.closing });
    } catch (error) {
      // A bug: the sender is still answered, and the process does not crash.
      this.reporter.unanswerable(error);
      sendAnswer(request, response, refuse('handler_failed'), { close: true });
    } finally {
      this.drain.leave();
    }
  }

  /** Receives a request, however it arrived, and returns its answer; never rejects, unless there is a bug. */
  async answerOf(
    incoming: IncomingWebhook,
    request: RequestHead,
    receiver: ResolvedReceiver,
  ): Promise<ReceivedAnswer> {
    const arrivedAt = receiving.now();
    const received = await this.receive({ incoming, receiver, arrivedAt });
    const answers = received.map((one): ReceivedAnswer => {
      const { answer } = one;
      const own = ownForm(answer, incoming, receiver);
      // The sender sees the status of its own form.
      const seen = { ...answer, status: own?.status ?? answer.status };
      this.reporter.report({ request, receiver, arrivedAt, ...one, answer: seen });
      return { answer, own };
    });
    return worstOf(answers);
  }

  /** Receives each event of a request. Never rejects. */
  private async receive(arrival: Arrival): Promise<readonly Received[]> {
    const { incoming, receiver } = arrival;
    try {
      this.requireOpen();
      const events = await this.verify(incoming, receiver);
      if (events.length === 0) return [{ answer: acknowledge('processed') }];
      const received: Received[] = [];
      // One after the other, so that a copy in the same request finds the record of the first.
      for (const verified of events) received.push(await this.receiveEvent(verified, arrival));
      return received;
    } catch (error) {
      return [{ answer: answerTo(error, receiver.takesTokens), error }];
    }
  }

  /** Handles an event, unless it was handled before. Never rejects. */
  private async receiveEvent(verified: Verified, arrival: Arrival): Promise<Received> {
    const { receiver } = arrival;
    let event: WebhookEvent | undefined;
    let unhandled = false;
    try {
      const reception = await this.reserve(verified, arrival);
      ({ event } = reception);
      if (reception.duplicate) return { answer: acknowledge('duplicate'), event };
      const handlers = this.dispatcher.handlersOf(event);
      unhandled = handlers.length === 0;
      const answer = await reception.handle(() =>
        this.callOrEnqueue(reception, handlers, receiver),
      );
      return { answer, event, unhandled };
    } catch (error) {
      return { answer: answerTo(error, receiver.takesTokens), event, error, unhandled };
    }
  }

  /** Refuses requests that arrive after shutdown has begun. */
  requireOpen(): void {
    if (this.drain.closing) throw new WebhookException(refuse('shutting_down'));
  }

  /**
   * Verifies a request and reserves its event, which the caller then handles with `reception.handle()`.
   *
   * @param arrivedAt - of `receiving.now()`
   * @throws {@link WebhookTokenError}, {@link WebhookSignatureError}, {@link WebhookPayloadError}, {@link WebhookStoreError};
   *   {@link WebhookReplayError} for an event in progress, for a known id with other content, and for a duplicate if the receiver
   *   rejects them; {@link WebhookException} with the answer to a sender's challenge
   */
  async admit(
    incoming: IncomingWebhook,
    receiver: ResolvedReceiver,
    arrivedAt?: number,
  ): Promise<WebhookReception> {
    const [verified, ...others] = await this.verify(incoming, receiver);
    if (verified === undefined) throw new WebhookException(acknowledge('processed'));
    if (others.length > 0) throw new WebhookException(refuse('batch_unsupported'));
    return this.reserve(verified, { incoming, receiver, arrivedAt });
  }

  /** The events of a request: one, unless its sender puts several into it. */
  private async verify(
    incoming: IncomingWebhook,
    receiver: ResolvedReceiver,
  ): Promise<readonly Verified[]> {
    const verified = await receiver.scheme.verify(incoming, receiver);
    if ('claims' in verified) return [verified];
    if ('batch' in verified) return verified.batch;
    throw new WebhookException(answerChallenge(verified));
  }

  private async reserve(
    verified: Verified,
    { incoming, receiver, arrivedAt }: Arrival,
  ): Promise<WebhookReception> {
    if ('error' in verified) throw verified.error;
    const { body, digest } = verified;
    try {
      const event = new WebhookEvent({
        receiver: receiver.name,
        signal: this.drain.signal,
        internals: new EventInternals(receiver.validator),
        ...verified,
      });
      const reservation = await reserveEvent(event, digest, receiver);
      if (arrivedAt !== undefined) observeReceiving(event, incoming, arrivedAt);
      return new WebhookReception(event, reservation, receiver, body, this.reporter);
    } catch (error) {
      body.remove();
      throw error;
    }
  }

  /** Calls the handlers of a mounted path, or enqueues the event for them. */
  private async callOrEnqueue(
    reception: WebhookReception,
    handlers: readonly WebhookHandler[],
    { events, queued, unhandledEvent, clock }: ResolvedReceiver,
  ): Promise<WebhookAnswer> {
    const { event } = reception;
    await requireDefinedData(event, events);
    if (handlers.length > 0) {
      if (queued !== undefined) {
        await enqueueEvent(reception, queued, clock);
        reception.stage = 'queued';
        return acknowledge('queued');
      }
      await this.dispatcher.call(handlers, event).catch((error: unknown) => {
        throw new HandlerFailure(error);
      });
    } else if (unhandledEvent === 'reject') {
      throw new WebhookException(refuse('event_unhandled'));
    } else {
      this.reporter.unhandled(event);
    }
    return acknowledge('processed');
  }
}

/** An answer in the form that the standard of the sender names; `undefined` if it names none. */
export function ownForm(
  { status, problem }: WebhookAnswer,
  incoming: IncomingWebhook,
  { scheme }: ResolvedReceiver,
): SenderAnswer | undefined {
  return scheme.answer?.({ status, code: problem?.code, detail: problem?.detail }, incoming);
}

/** An answer in the form that the sender's standard names, if it names one. */
function formed({ answer, own }: ReceivedAnswer): WebhookAnswer {
  if (own === undefined) return answer;
  const { situation, headers } = answer;
  return { situation, status: own.status, headers: { ...headers, ...own.headers }, json: own.body };
}

/**
 * The answer to a request with several events: the one with the highest status, so that a sender repeats the request if one event
 * failed. Of events that were handled before, only if all were.
 */
function worstOf(answers: readonly ReceivedAnswer[]): ReceivedAnswer {
  const rank = ({ answer: { situation, status } }: ReceivedAnswer): number =>
    situation === 'duplicate' ? 0 : status;
  return answers.reduce((worst, one) => (rank(one) > rank(worst) ? one : worst));
}
