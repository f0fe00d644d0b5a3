import type { IncomingMessage, ServerResponse } from 'node:http';
import { isNativeError } from 'node:util/types';
import { Injectable, Logger } from '@nestjs/common';
import { after, type MaybePromise } from '../token/maybe-promise.js';
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
import { publishReceived } from './receiver.diagnostics.js';
import { ReceiverDrain } from './receiver.drain.js';
import type { ResolvedReceiver } from './receiver-options.interface.js';
import { sendAnswer } from './answers/send-answer.js';
import { WebhookDispatcher } from './handlers/webhook.dispatcher.js';
import { enqueueEvent } from './queued/received-delivery.js';
import { WebhookException } from './answers/webhook.exception.js';
import type { WebhookEvent } from './webhook-event.js';
import type { WebhookReception } from './replay/webhook-reception.js';
import { WebhookVerifier } from './webhook.verifier.js';

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
  /** Whether the last that was heard of the replay store was a failure: told once, not for each request. */
  private storeInTrouble = false;
  private readonly spoolTroubles = new Set<string>();

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
    this.drain.enter();
    try {
      const answer = await this.answer(fromNodeRequest(request, bodyOf(request)), receiver);
      sendAnswer(request, response, answer, { close: this.drain.closing });
    } catch (error) {
      // Nothing above is meant to throw; a sender is answered all the same, and the process lives on.
      this.logger.error('A webhook could not be answered', stackOf(error));
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

  /** Records an event as handled; says so where the record could not be made. */
  complete(
    reception: WebhookReception,
    done: 'handled' | 'queued' = 'handled',
  ): MaybePromise<void> {
    return after(reception.complete(), (isRecorded) => {
      if (!isRecorded) this.warnUnrecorded(reception.event, done);
    });
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
    } else if (answer.situation === 'store_unavailable') {
      this.logStoreTrouble(error);
    } else if (answer.situation === 'spool_unavailable') {
      this.logSpoolTrouble(error);
    } else if (answer.situation === 'lease_lost') {
      this.logger.warn(
        `${event?.event} (id ${event?.id}) could not be committed: its lease has ended. The sender comes again; a handler that is often too slow wants a longer replay.lease`,
      );
    } else if (answer.situation === 'payload_consumed') {
      // No sender's doing: the application is set up so that no webhook with a body can get in.
      this.logger.error(answer.problem?.detail);
    } else if (answer.problem !== undefined) {
      // Anybody can have a request refused: at a louder level the log would be theirs to fill.
      this.logger.debug(`Refused: ${answer.status} ${answer.situation}`);
    } else if (this.storeInTrouble) {
      this.storeInTrouble = false;
      this.logger.log('What webhooks are kept in works again');
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
      if (!reception.duplicate) unhandled = !(await this.dispatch(reception.event, receiver));
      if (unhandled && receiver.unhandledEvent === 'reject') {
        throw new WebhookException(refuse('event_unhandled'));
      }
      if (unhandled) this.warnUnhandled(reception.event);
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
    this.report(answer, reception?.event, failure, unhandled);
    return answer;
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

  private logStoreTrouble(error: unknown): void {
    if (this.storeInTrouble) return;
    this.storeInTrouble = true;
    this.logger.error(`Webhooks are answered 503: ${withCause(error)}`);
  }

  /** Each trouble once: senders of large bodies could fill the log. */
  private logSpoolTrouble(error: unknown): void {
    const { message } = error as Error;
    if (this.spoolTroubles.has(message)) return;
    this.spoolTroubles.add(message);
    this.logger.error(`Webhooks with large bodies are answered 503: ${withCause(error)}`);
  }

  private logFailure(cause: unknown, event: WebhookEvent | undefined): void {
    const failures: readonly unknown[] = cause instanceof AggregateError ? cause.errors : [cause];
    for (const failure of failures) {
      this.logger.error(
        `A handler of ${event?.event ?? 'an event'} failed (id ${event?.id ?? 'unknown'})`,
        stackOf(failure),
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

  private warnUnrecorded({ event, id }: WebhookEvent, done: 'handled' | 'queued'): void {
    this.logger.warn(
      `${event} (id ${id}) was ${done}, but the replay store did not take the record: a copy may be ${done} again`,
    );
  }
}

/** Middleware ahead of ours may have read the body, on an Express instance that the application made itself. */
function bodyOf(request: IncomingMessage): BodySource {
  return request.readableDidRead ? { kind: 'consumed' } : { kind: 'stream', stream: request };
}

function withCause(error: unknown): string {
  const { message, cause } = error as Error;
  return isNativeError(cause) ? `${message}: ${cause.message}` : message;
}

function stackOf(error: unknown): string | undefined {
  return error instanceof Error ? error.stack : undefined;
}
