import { type CanActivate, type ExecutionContext, Injectable } from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type BodySource, fromNodeRequest } from '../request/incoming-webhook.js';
import { isThenable, type MaybePromise } from '../token/maybe-promise.js';
import { closesConnection } from './answers/send-answer.js';
import {
  acknowledge,
  refuse,
  refuseByApplication,
  type WebhookAnswer,
  WebhookException,
} from './answers/webhook-answer.js';
import { requireDefinedData } from './handlers/defined-data.js';
import { readRoute } from './handlers/handler-metadata.js';
import { unshieldBody } from './mount/body-shield.js';
import { receiving } from './receiver.channels.js';
import type { ResolvedReceiver } from './receiver-options.interface.js';
import { ReceiverDrain } from './receiver.drain.js';
import { ReceiverReporter } from './receiver.reporter.js';
import {
  type AdapterRequest,
  attachReception,
  nodeRequest,
  receptionOf,
} from './request-reception.js';
import type { WebhookReception } from './replay/webhook-reception.js';
import { isReadOnDemand, type WebhookEvent } from './webhook-event.js';
import { WebhookIntake } from './webhook.intake.js';
import { WebhookVerifier } from './webhook.verifier.js';

/**
 * Lets a request through if it carries a verified event that was not handled before.
 *
 * Use it on any route: `@UseGuards(WebhookGuard)`. The handler gets the event by `@WebhookContext()`, and its data by
 * `@WebhookData()` or `@Body()`. The event counts as handled if the route answers with a success. `@WebhookRoute()` includes this
 * guard.
 */
@Injectable()
export class WebhookGuard implements CanActivate {
  constructor(
    protected readonly verifier: WebhookVerifier,
    private readonly intake: WebhookIntake,
    private readonly drain: ReceiverDrain,
    private readonly reporter: ReceiverReporter,
    private readonly adapterHost: HttpAdapterHost,
  ) {}

  async canActivate(context: ExecutionContext): Promise<boolean> {
    const http = context.switchToHttp();
    const request = http.getRequest<AdapterRequest>();
    const response = http.getResponse<ServerResponse>();
    const node = nodeRequest(request);
    // A guard that is bound to the class and to the method runs twice.
    if (receptionOf(request) !== undefined) return true;
    const arrivedAt = receiving.now();
    unshieldBody(node);
    const watched = this.watch(request, nodeResponse(response));
    let receiver: ResolvedReceiver | undefined;
    let event: WebhookEvent | undefined;
    try {
      receiver = this.verifier.receiver(this.receiverName(context));
      const reception = await this.intake.admit(
        fromNodeRequest(node, bodyOf(request, node)),
        receiver,
        arrivedAt,
      );
      ({ event } = reception);
      if (reception.duplicate) {
        reception.abandon();
        throw new WebhookException(acknowledge(true));
      }
      if (receiver.events !== undefined) {
        await requireDefinedData(event, receiver.events).catch(async (error: unknown) => {
          await reception.fail();
          throw error;
        });
      }
      // The sender disconnected, or was answered, while the event was verified: its handler must not start.
      if (nodeResponse(response).destroyed || watched.isOver) {
        await reception.fail();
        throw new WebhookException(refuse('payload_incomplete'));
      }
      watched.reception = reception;
      this.letIn(request, nodeResponse(response), reception);
      return true;
    } catch (error) {
      const exception = WebhookException.from(error);
      this.writeHeaders(node, response, exception);
      this.reporter.answered({
        answer: exception.answer,
        request,
        receiver,
        event,
        error,
        arrivedAt,
      });
      throw exception;
    }
  }

  /** The receiver whose rules apply. Override it to choose one for a route without `@WebhookRoute()`. */
  protected receiverName(context: ExecutionContext): string | undefined {
    return readRoute(context.getHandler())?.receiver;
  }

  /**
   * Settles the event when the request is answered, unless `@WebhookRoute()` did: on other routes, and if another guard or a pipe
   * refuses the request.
   *
   * @returns holds the reception, once the event is admitted
   */
  private watch(request: AdapterRequest, response: ServerResponse): WatchedAnswer {
    const watched: WatchedAnswer = { reception: undefined, isOver: false };
    this.drain.enter();
    whenAnswered(response, () => {
      watched.isOver = true;
      const settled = watched.reception && this.settle(watched.reception, request, response);
      if (isThenable(settled)) void settled.then(() => this.drain.leave());
      else this.drain.leave();
    });
    return watched;
  }

  /** Never rejects. */
  private settle(
    reception: WebhookReception,
    request: AdapterRequest,
    response: ServerResponse,
  ): MaybePromise<unknown> {
    const complete = response.writableFinished;
    const success = complete && response.statusCode >= 200 && response.statusCode < 300;
    const { event, unsettled, running } = reception;
    if (success) this.reporter.answered({ answer: acknowledge(false), request, event });
    // @WebhookRoute() waits for its handler, even if the connection is closed.
    if (!unsettled || running) return undefined;
    if (success) return this.recordAcknowledged(reception);
    this.reporter.answered({ answer: failureOf(response.statusCode), request, event });
    // Without an answer, the handler may still be running: the end of the lease frees the event.
    return complete ? reception.fail() : reception.abandon();
  }

  /** Records the event of a route without `@WebhookRoute()`, whose success is sent already. */
  private async recordAcknowledged(reception: WebhookReception): Promise<void> {
    try {
      if (!(await reception.complete())) this.reporter.takenOver(reception.event);
    } catch {
      reception.abandon();
      this.reporter.unrecorded(reception.event, 'acknowledged');
    }
  }

  private letIn(
    request: AdapterRequest,
    response: ServerResponse,
    reception: WebhookReception,
  ): void {
    attachReception(request, reception, this.intake);
    const { event } = reception;
    // A large body in a file is read on demand. Otherwise a plain member: a getter would give each request its own hidden class.
    if (isReadOnDemand(event)) {
      Object.defineProperty(request, 'body', {
        get: () => event.data,
        set: (value: unknown) => {
          Object.defineProperty(request, 'body', { value, ...PLAIN });
        },
        configurable: true,
        enumerable: true,
      });
    } else {
      (request as { body?: unknown }).body = event.data;
    }
    response.setHeader('Cache-Control', 'no-store');
  }

  private writeHeaders(
    node: IncomingMessage,
    response: ServerResponse,
    { answer }: WebhookException,
  ): void {
    if (nodeResponse(response).headersSent) return;
    const adapter = this.adapterHost.httpAdapter;
    const headers: Record<string, string> = { ...answer.headers };
    if (answer.problem !== undefined) headers['Content-Type'] = 'application/problem+json';
    if (closesConnection(node, this.drain.closing)) headers['Connection'] = 'close';
    for (const [name, value] of Object.entries(headers)) adapter.setHeader(response, name, value);
  }
}

/** A request that is being answered. */
interface WatchedAnswer {
  reception: WebhookReception | undefined;
  /** Whether it was answered, or its connection closed. */
  isOver: boolean;
}

/** On a route without `@WebhookRoute()`, the status is all that is known: a guard or the handler may have set it. */
function failureOf(status: number): WebhookAnswer {
  const isRefusal = status >= 400 && status < 500;
  return isRefusal ? refuseByApplication(status) : refuse('handler_failed', { status });
}

/** A plain data property. */
const PLAIN = { configurable: true, enumerable: true, writable: true };

function nodeResponse(response: ServerResponse | { raw: ServerResponse }): ServerResponse {
  return 'raw' in response ? response.raw : response;
}

/** The unread stream; if something has read it, the copy that Nest keeps with `rawBody: true`. */
function bodyOf(request: AdapterRequest, node: IncomingMessage): BodySource {
  if (!node.readableDidRead && !node.readableEnded) return { kind: 'stream', stream: node };
  const kept = (request as { rawBody?: unknown }).rawBody;
  return Buffer.isBuffer(kept) ? { kind: 'bytes', bytes: kept } : emptyOrConsumed(node);
}

function emptyOrConsumed(node: IncomingMessage): BodySource {
  const { 'content-length': length, 'transfer-encoding': encoding } = node.headers;
  // In HTTP/2, a body needs neither header.
  const { stream } = node as { stream?: { readonly endAfterHeaders: boolean } };
  const empty =
    length === undefined
      ? encoding === undefined && stream?.endAfterHeaders !== false
      : Number(length) === 0;
  return empty ? { kind: 'bytes', bytes: Buffer.alloc(0) } : { kind: 'consumed' };
}

/**
 * Calls back once, when an answer was sent or its connection closed.
 *
 * A cheaper `finished` of `node:stream`: three listeners instead of eight (benchmark `receive`, `@WebhookRoute`).
 */
function whenAnswered(response: ServerResponse, callback: () => void): void {
  let called = false;
  const call = (): void => {
    if (called) return;
    called = true;
    callback();
  };
  // The error listener stays: without it, a write after the end would crash the process.
  response.on('error', call).once('finish', call).once('close', call);
  if (response.destroyed || response.writableFinished) process.nextTick(call);
}
