import type { ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';
import {
  Catch,
  Injectable,
  type ArgumentsHost,
  type CallHandler,
  type ExceptionFilter,
  type ExecutionContext,
  type NestInterceptor,
} from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import { defer, lastValueFrom, type Observable } from 'rxjs';
import { isJsonType, parseJsonPayload } from '../request/json-payload.js';
import { DEFAULT_MAX_JSON_MEMBERS } from '../token/webhook-token.constants.js';
import { HandlerFailure, refuse, type WebhookAnswer, WebhookException } from './answers.js';
import {
  nodeRequest,
  receptionOf,
  unshieldBody,
  wasShielded,
  type AdapterRequest,
} from './node-request.js';
import { observeHandler } from './receiver.channels.js';
import { ReceiverReporter } from './receiver.reporter.js';

/** Settles the event of a `@WebhookRoute()` before its answer is sent, so that an immediate repetition finds the record. */
@Injectable()
export class WebhookInterceptor implements NestInterceptor {
  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const reception = receptionOf(context.switchToHttp().getRequest<AdapterRequest>());
    if (reception === undefined) return next.handle();
    const name = `${context.getClass().name}.${context.getHandler().name}`;
    // Wait for the last value: a stream may fail after the first.
    const handle = async (): Promise<unknown> =>
      lastValueFrom(next.handle(), { defaultValue: undefined });
    return defer(async () => {
      // The sender disconnected while another guard, an interceptor or a pipe ran, and the event was left to its lease: handled
      // now, it could not be recorded, and would be handled again.
      if (!reception.unsettled) throw new WebhookException(refuse('payload_incomplete'));
      return reception.run(async () => observeHandler(name, reception.event, handle));
    });
  }
}

/**
 * Answers every error on a `@WebhookRoute()` by the answer table.
 *
 * It is bound to the method, so it runs before the filters of the class and of the application: one that answers every error with a
 * 200 would acknowledge a failed event.
 */
@Catch()
export class WebhookExceptionFilter implements ExceptionFilter {
  constructor(
    private readonly adapterHost: HttpAdapterHost,
    private readonly reporter: ReceiverReporter,
  ) {}

  async catch(error: unknown, host: ArgumentsHost): Promise<void> {
    const http = host.switchToHttp();
    const request = http.getRequest<AdapterRequest>();
    const reception = receptionOf(request);
    const thrown = reception?.handlerFailed === true ? new HandlerFailure(error) : error;
    const failure = reception?.leaseLost ?? thrown;
    const answer = WebhookException.answerTo(failure);
    // An interceptor may have given up on a handler that still runs: its end settles the event.
    if (reception?.running === false) await reception.fail();
    // The guard reported its own refusals already.
    if (!(failure instanceof WebhookException)) {
      this.reporter.answered({ answer, request, event: reception?.event, error: failure });
    }
    this.write(answer, http.getResponse<ServerResponse>(), nodeRequest(request).method === 'HEAD');
  }

  private write(answer: WebhookAnswer, response: ServerResponse, isHead: boolean): void {
    const adapter = this.adapterHost.httpAdapter;
    if (adapter.isHeadersSent(response)) return;
    for (const [name, value] of Object.entries(answer.headers)) {
      adapter.setHeader(response, name, value);
    }
    const body = answer.problem === undefined ? undefined : JSON.stringify(answer.problem);
    if (body !== undefined) adapter.setHeader(response, 'Content-Type', 'application/problem+json');
    adapter.reply(response, isHead ? undefined : body, answer.status);
  }
}

/** The largest JSON body that a route without the guard gets. */
const MAX_UNGUARDED_JSON = 1_048_576;

/**
 * Parses the JSON body of a signed request to a route without the guard: its token has kept the application's parsers away before
 * the router chose a route. The guards of that route have run already, without a body.
 */
@Injectable()
export class UnguardedBodyInterceptor implements NestInterceptor {
  async intercept(context: ExecutionContext, next: CallHandler): Promise<Observable<unknown>> {
    if (context.getType() === 'http') {
      await parseUnguarded(context.switchToHttp().getRequest<AdapterRequest>());
    }
    return next.handle();
  }
}

async function parseUnguarded(request: AdapterRequest): Promise<void> {
  const node = nodeRequest(request);
  if (!wasShielded(node) || receptionOf(request) !== undefined) return;
  unshieldBody(node);
  const { headers } = node;
  const { 'content-type': type, 'content-encoding': encoding, 'content-length': length } = headers;
  if (node.readableDidRead || encoding !== undefined) return;
  if (type === undefined || !isJsonType(type)) return;
  // Node reads no more bytes than declared.
  if (length === undefined || Number(length) > MAX_UNGUARDED_JSON) return;
  const rawBody = await buffer(node);
  try {
    const body = parseJsonPayload(rawBody, type, DEFAULT_MAX_JSON_MEMBERS);
    Object.assign(request, { rawBody, body });
  } catch (error) {
    throw WebhookException.from(error);
  }
}
