import type { IncomingMessage, ServerResponse } from 'node:http';
import { Injectable, Logger } from '@nestjs/common';
import { HandlerFailure } from './answers/handler-failure.js';
import { fromNodeRequest, type IncomingWebhook } from './request/incoming-webhook.js';
import { publishReceived } from './receiver.diagnostics.js';
import { ReceiverDrain } from './receiver.drain.js';
import type { ResolvedReceiver } from './receiver-options.interface.js';
import { sendAnswer } from './answers/send-answer.js';
import { acknowledge, answerTo, refuse, type WebhookAnswer } from './answers/webhook-answer.js';
import { WebhookDispatcher } from './handlers/webhook.dispatcher.js';
import { WebhookException } from './answers/webhook.exception.js';
import type { WebhookEvent } from './webhook-event.js';
import type { WebhookReception } from './replay/webhook-reception.js';
import { WebhookVerifier } from './webhook.verifier.js';
import { keepValidation } from './handlers/receiver-validation.js';

/** Event names a warning was given for; beyond them, one more says that there are others. */
const WARNED_EVENTS = 100;

/**
 * The way of a request on a mounted path, from Node's request to Node's response: let in, hand to the
 * handlers, settle, answer. No router, parser, interceptor or filter of the application lies on it.
 */
@Injectable()
export class WebhookIntake {
  private readonly logger = new Logger('WebhookReceiver');
  private readonly warned = new Set<string>();

  constructor(
    private readonly verifier: WebhookVerifier,
    private readonly dispatcher: WebhookDispatcher,
    private readonly drain: ReceiverDrain,
  ) {}

  /** Answers a request; never rejects. */
  async handle(
    request: IncomingMessage,
    response: ServerResponse,
    receiver: ResolvedReceiver,
  ): Promise<void> {
    const incoming = fromNodeRequest(request, { kind: 'stream', stream: request });
    this.drain.enter();
    try {
      const answer = await this.answer(incoming, receiver);
      sendAnswer(request, response, answer, { close: this.drain.closing });
    } finally {
      this.drain.leave();
    }
  }

  /** Lets an event in on a route of the application; the shared part of both ways. */
  async admit(incoming: IncomingWebhook, receiver: ResolvedReceiver): Promise<WebhookReception> {
    if (this.drain.closing) throw new WebhookException(refuse('shutting_down'));
    const reception = await this.verifier.admit(incoming, receiver);
    keepValidation(reception.event, receiver.validation);
    return reception;
  }

  /** Tells log and diagnostics how a request ended. */
  report(answer: WebhookAnswer, event?: WebhookEvent, error?: unknown, unhandled = false): void {
    publishReceived(() => ({
      situation: answer.situation,
      status: answer.status,
      receiver: event?.receiver,
      event: event?.event,
      issuer: event?.issuer,
      unhandled,
    }));
    if (error instanceof HandlerFailure && answer.situation === 'handler_failed') {
      this.logFailure(error.cause, event);
    } else if (answer.situation === 'payload_consumed') {
      // No sender's doing: the application is set up so that no webhook with a body can get in.
      this.logger.error(answer.problem?.detail);
    } else if (answer.problem !== undefined) {
      // Anybody can have a request refused: at a louder level the log would be theirs to fill.
      this.logger.debug(`Refused: ${answer.status} ${answer.situation}`);
    }
  }

  private async answer(
    incoming: IncomingWebhook,
    receiver: ResolvedReceiver,
  ): Promise<WebhookAnswer> {
    let reception: WebhookReception | undefined;
    let unhandled = false;
    let answer: WebhookAnswer;
    let failure: unknown;
    try {
      reception = await this.admit(incoming, receiver);
      if (!reception.duplicate) unhandled = (await this.dispatch(reception.event)) === 0;
      if (unhandled && receiver.unhandledEvent === 'reject') {
        throw new WebhookException(refuse('event_unhandled'));
      }
      if (unhandled) this.warnUnhandled(reception.event);
      if (!(await reception.complete())) this.warnUnrecorded(reception.event);
      answer = acknowledge(reception.duplicate);
    } catch (error) {
      failure = error;
      await reception?.fail();
      answer = error instanceof WebhookException ? error.answer : answerTo(error);
    }
    this.report(answer, reception?.event, failure, unhandled);
    return answer;
  }

  private async dispatch(event: WebhookEvent): Promise<number> {
    try {
      return await this.dispatcher.dispatch(event);
    } catch (error) {
      throw new HandlerFailure(error);
    }
  }

  private logFailure(cause: unknown, event: WebhookEvent | undefined): void {
    const failures: readonly unknown[] = cause instanceof AggregateError ? cause.errors : [cause];
    for (const failure of failures) {
      this.logger.error(
        `A handler of ${event?.event ?? 'an event'} failed (id ${event?.id ?? 'unknown'})`,
        failure instanceof Error ? failure.stack : undefined,
      );
    }
  }

  private warnUnhandled({ event, receiver }: WebhookEvent): void {
    if (this.warned.has(event) || this.warned.size > WARNED_EVENTS) return;
    this.warned.add(event);
    this.logger.warn(
      this.warned.size > WARNED_EVENTS
        ? 'More events without a handler arrive; their names are not logged any more'
        : `No handler for ${event} on receiver "${receiver}": it was acknowledged and dropped. Add @OnWebhookEvent('${event}'), or set unhandledEvent: 'reject'`,
    );
  }

  private warnUnrecorded({ event, id }: WebhookEvent): void {
    this.logger.warn(
      `${event} (id ${id}) was handled, but the replay store did not take the record: a copy may be handled again`,
    );
  }
}
