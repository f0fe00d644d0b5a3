import { type CanActivate, type ExecutionContext, Injectable } from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { MethodHost } from '../options/decorated-methods.js';
import type { BodySource } from '../request/webhook-scheme.js';
import {
  bodyOf,
  fromNodeRequest,
  closesConnection,
  type AdapterRequest,
  attachReception,
  nodeRequest,
  nodeResponse,
  receptionOf,
} from './node-http.js';
import { WebhookException } from './error-answers.js';
import { acknowledge, refuse, type WebhookAnswer } from '../request/webhook-answers.js';
import { requireDefinedData } from './handlers/payload-validator.js';
import { readRoute } from './handlers/handler-metadata.js';
import { unshieldBody } from './mount/body-shield.js';
import { receiving } from './receiver.channels.js';
import type { ResolvedReceiver, ResolvedReceivers } from './receiver-options.resolver.js';
import { ReceiverDrain } from './receiver.drain.js';
import { ReceiverReporter } from './receiver.reporter.js';
import { ownForm, ReceivePipeline } from './receive.js';
import type { WebhookReception } from './reception.js';
import { isHandlerCall, isReadOnDemand, type WebhookEvent } from './webhook-event.js';
import { WebhookVerifier } from './webhook.verifier.js';

/**
 * Lets a request through if it carries a verified event that was not handled before.
 *
 * Use `@WebhookRoute()`, which includes this guard and records the event before its answer is sent. On any other route,
 * `@UseGuards(WebhookGuard)` verifies the request, and records the event after the route has answered with a success: if the
 * process crashes in between, or the record fails, a copy is handled again. The handler gets the event by `@WebhookContext()`, and
 * its data by `@WebhookData()` or `@Body()`.
 */
@Injectable()
export class WebhookGuard implements CanActivate {
  constructor(
    protected readonly verifier: WebhookVerifier,
    private readonly pipeline: ReceivePipeline,
    private readonly drain: ReceiverDrain,
    private readonly reporter: ReceiverReporter,
    private readonly adapterHost: HttpAdapterHost,
  ) {}

  async canActivate(context: ExecutionContext): Promise<boolean> {
    if (isHandlerCall(context)) return true;
    if (context.getType() !== 'http') {
      throw new TypeError(
        'WebhookGuard guards HTTP routes: bind it to their methods, and not to a class that also has handlers of messages',
      );
    }
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
      this.pipeline.requireOpen();
      receiver = this.verifier.receiver(this.receiverName(context));
      const body = bodyOf(request) ?? emptyOrConsumed(node, receiver);
      const incoming = fromNodeRequest(node, body);
      const reception = await this.pipeline.admit(incoming, receiver, arrivedAt);
      ({ event } = reception);
      if (reception.duplicate) {
        const answer = acknowledge('duplicate');
        // Some senders repeat an event until they get a status of their own.
        const { status = answer.status } = ownForm(answer, incoming, receiver) ?? {};
        throw new WebhookException({ ...answer, status });
      }
      try {
        await requireDefinedData(event, receiver.events);
        // The sender disconnected, or was answered, while the event was verified: its handler must not start.
        if (nodeResponse(response).destroyed || watched.isOver) {
          throw new WebhookException(refuse('payload_incomplete'));
        }
      } catch (error) {
        await reception.fail();
        throw error;
      }
      watched.reception = reception;
      attachReception(request, reception);
      provideBody(request, event);
      nodeResponse(response).setHeader('Cache-Control', 'no-store');
      return true;
    } catch (error) {
      const exception = WebhookException.from(error, receiver?.takesTokens);
      const { answer } = exception;
      this.writeHeaders(node, response, answer);
      this.reporter.report({ answer, request, receiver, event, error, arrivedAt });
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
    // Otherwise an idle connection of the sender would hold up the end of the server.
    const endConnection = (): void => {
      if (!response.headersSent && closesConnection(nodeRequest(request), true)) {
        response.setHeader('Connection', 'close');
      }
    };
    const settle = async (): Promise<void> => {
      if (watched.reception !== undefined) await this.settle(watched.reception, request, response);
      this.drain.leave(endConnection);
    };
    const onOver = (): void => {
      if (watched.isOver) return;
      watched.isOver = true;
      void settle();
    };
    this.drain.enter(endConnection);
    // The error listener stays: without it, a write after the end would crash the process.
    response.on('error', onOver).once('finish', onOver).once('close', onOver);
    if (response.destroyed || isAnswered(response)) process.nextTick(onOver);
    return watched;
  }

  /** Never rejects. */
  private async settle(
    reception: WebhookReception,
    request: AdapterRequest,
    response: ServerResponse,
  ): Promise<void> {
    const complete = isAnswered(response);
    const success = complete && response.statusCode >= 200 && response.statusCode < 300;
    const { event } = reception;
    if (success) this.reporter.report({ answer: acknowledge('processed'), request, event });
    // @WebhookRoute() settles the event when its handler ends, even if the connection is closed.
    if (reception.state !== 'open') return reception.idle();
    if (success) {
      reception.stage = 'acknowledged';
      return reception.complete().catch(() => undefined);
    }
    this.reporter.report({ answer: failureOf(response.statusCode), request, event });
    // Without an answer, the handler may still be running: the end of the lease frees the event.
    return complete ? reception.fail() : reception.abandon();
  }

  private writeHeaders(
    node: IncomingMessage,
    response: ServerResponse,
    answer: WebhookAnswer,
  ): void {
    if (nodeResponse(response).headersSent) return;
    const adapter = this.adapterHost.httpAdapter;
    const headers: Record<string, string> = { ...answer.headers };
    if (answer.problem !== undefined) headers['Content-Type'] = 'application/problem+json';
    if (closesConnection(node, this.drain.closing)) headers['Connection'] = 'close';
    for (const [name, value] of Object.entries(headers)) adapter.setHeader(response, name, value);
  }
}

/** The receivers of the webhook module that the module of a `@WebhookRoute()` uses; `undefined` if a test has replaced the guard. */
export function receiversOfRoute({ host }: MethodHost): ResolvedReceivers | undefined {
  const guard: unknown = host?.injectables.get(WebhookGuard)?.instance;
  return guard instanceof WebhookGuard ? guard['verifier']['receivers'] : undefined;
}

interface WatchedAnswer {
  reception: WebhookReception | undefined;
  /** Whether it was answered, or its connection closed. */
  isOver: boolean;
}

/** The stream of a HEAD over HTTP/2 is finished before anything is written. */
function isAnswered({ headersSent, writableFinished }: ServerResponse): boolean {
  return headersSent && writableFinished;
}

/** On a route without `@WebhookRoute()`, the status is all that is known: a guard or the handler may have set it. */
function failureOf(status: number): WebhookAnswer {
  const isRefusal = status >= 400 && status < 500;
  return refuse(isRefusal ? 'application_refused' : 'handler_failed', { status });
}

/** Provides the data as `@Body()`; a large body in a file is read on demand. */
function provideBody(request: AdapterRequest, event: WebhookEvent): void {
  const plain = { configurable: true, enumerable: true };
  const assign = (value: unknown): void => {
    Object.defineProperty(request, 'body', { value, writable: true, ...plain });
  };
  if (isReadOnDemand(event)) {
    Object.defineProperty(request, 'body', { get: () => event.data, set: assign, ...plain });
  } else {
    assign(event.data);
  }
}

function emptyOrConsumed(node: IncomingMessage, { takesTokens }: ResolvedReceiver): BodySource {
  const { 'content-length': length, 'transfer-encoding': encoding } = node.headers;
  // In HTTP/2, a body needs neither header.
  const { stream } = node as { stream?: { readonly endAfterHeaders: boolean } };
  const empty =
    length === undefined
      ? encoding === undefined && stream?.endAfterHeaders !== false
      : Number(length) === 0;
  if (empty) return { kind: 'bytes', bytes: Buffer.alloc(0) };
  // Only a token keeps Nest's own parser away.
  return takesTokens && node.headers.authorization !== undefined
    ? { kind: 'consumed' }
    : {
        kind: 'consumed',
        remedy: 'create the application with rawBody: true, or give the receiver a path',
      };
}
