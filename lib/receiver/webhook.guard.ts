import type { IncomingMessage, ServerResponse } from 'node:http';
import { Injectable, type CanActivate, type ExecutionContext } from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import { unshieldBody } from './mount/body-shield.js';
import { fromNodeRequest, type BodySource } from '../request/incoming-webhook.js';
import {
  keepReception,
  nodeRequest,
  receptionOf,
  type AdapterRequest,
} from './reception-of-request.js';
import {
  acknowledge,
  refuse,
  refuseByApplication,
  type WebhookAnswer,
} from './answers/webhook-answer.js';
import type { ResolvedReceiver } from './receiver-options.interface.js';
import { closesConnection } from './answers/send-answer.js';
import { whenAnswered } from './answers/when-answered.js';
import type { WebhookReception } from './replay/webhook-reception.js';
import { WebhookException } from './answers/webhook.exception.js';
import { WebhookIntake } from './webhook.intake.js';
import { isReadLater } from './webhook-event.js';
import { readRoute } from './handlers/webhook-subscription.js';
import { ReceiverDrain } from './receiver.drain.js';
import { ReceiverReporter } from './receiver.reporter.js';
import { WebhookVerifier } from './webhook.verifier.js';

/**
 * Lets a request through when it carries a verified event that was not handled before.
 *
 * On any route: `@UseGuards(WebhookGuard)`. The event is then at `@WebhookContext()` and `@WebhookData()`,
 * and its data at `@Body()`. It counts as handled when the answer is a success. `@WebhookRoute()`
 * brings this guard along.
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
    // Bound to the class and to the method, the guard runs twice.
    if (receptionOf(request) !== undefined) return true;
    unshieldBody(node);
    const watched = this.watch(request, nodeResponse(response));
    let receiver: ResolvedReceiver | undefined;
    try {
      receiver = this.verifier.receiver(this.receiverName(context));
      const reception = await this.intake.admit(
        fromNodeRequest(node, bodyOf(request, node)),
        receiver,
      );
      if (reception.duplicate) {
        reception.abandon();
        throw new WebhookException(acknowledge(true));
      }
      // The sender may have gone while the store was asked, or was answered: nothing was begun, so nothing is.
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
      this.reporter.answered({ answer: exception.answer, request, receiver, error });
      throw exception;
    }
  }

  /** The receiver whose rules hold; override it to choose one for a route without `@WebhookRoute()`. */
  protected receiverName(context: ExecutionContext): string | undefined {
    return readRoute(context.getHandler())?.receiver;
  }

  /**
   * Whatever answers the request says how it went. The interceptor of `@WebhookRoute()` has settled the event by then; on
   * other routes, and where another guard refuses, this is what does.
   *
   * @returns what takes the event, once it is let in
   */
  private watch(request: AdapterRequest, response: ServerResponse): WatchedAnswer {
    const watched: WatchedAnswer = { reception: undefined, isOver: false };
    this.drain.enter();
    whenAnswered(response, () => {
      watched.isOver = true;
      if (watched.reception !== undefined) this.settle(watched.reception, request, response);
      this.drain.leave();
    });
    return watched;
  }

  private settle(
    reception: WebhookReception,
    request: AdapterRequest,
    response: ServerResponse,
  ): void {
    const complete = response.writableFinished;
    const success = complete && response.statusCode >= 200 && response.statusCode < 300;
    const { event, unsettled, running } = reception;
    if (success) this.reporter.answered({ answer: acknowledge(false), request, event });
    // The interceptor of @WebhookRoute() waits for its handler, whatever became of the connection.
    if (!unsettled || running) return;
    if (success) return void this.recordAcknowledged(reception);
    this.reporter.answered({ answer: failureOf(response.statusCode), request, event });
    // Without an answer nobody knows whether the handler is still at it: its lease frees the event.
    if (complete) void reception.fail();
    else reception.abandon();
  }

  /** Records the event of a route without the interceptor, whose success is sent already. */
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
    keepReception(request, reception);
    const { event } = reception;
    // Asked for late where it is a large file; a member with a getter costs each request a shape of its own.
    if (isReadLater(event)) {
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
    if (this.drain.closing || closesConnection(node)) headers['Connection'] = 'close';
    for (const [name, value] of Object.entries(headers)) adapter.setHeader(response, name, value);
  }
}

/** A request that is under way. */
interface WatchedAnswer {
  reception: WebhookReception | undefined;
  /** Whether it was answered, or never will be. */
  isOver: boolean;
}

/** On a route without the interceptor, the status is all that is known: a guard or the handler may have set it. */
function failureOf(status: number): WebhookAnswer {
  const isRefusal = status >= 400 && status < 500;
  return isRefusal ? refuseByApplication(status) : refuse('handler_failed', { status });
}

/** A member like any other. */
const PLAIN = { configurable: true, enumerable: true, writable: true };

function nodeResponse(response: ServerResponse | { raw: ServerResponse }): ServerResponse {
  return 'raw' in response ? response.raw : response;
}

/** The body as it arrives; or, where something has read it, the copy the application was told to keep. */
function bodyOf(request: AdapterRequest, node: IncomingMessage): BodySource {
  if (!node.readableDidRead) return { kind: 'stream', stream: node };
  const kept = (request as { rawBody?: unknown }).rawBody;
  return Buffer.isBuffer(kept) ? { kind: 'bytes', bytes: kept } : emptyOrConsumed(node);
}

function emptyOrConsumed(node: IncomingMessage): BodySource {
  const empty =
    node.headers['transfer-encoding'] === undefined &&
    Number(node.headers['content-length'] ?? 0) === 0;
  return empty ? { kind: 'bytes', bytes: Buffer.alloc(0) } : { kind: 'consumed' };
}
