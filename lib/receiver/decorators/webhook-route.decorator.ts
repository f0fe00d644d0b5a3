import type { ServerResponse } from 'node:http';
import {
  All,
  applyDecorators,
  type ArgumentsHost,
  type CallHandler,
  Catch,
  type ExceptionFilter,
  type ExecutionContext,
  HttpCode,
  Injectable,
  type NestInterceptor,
  UseFilters,
  UseGuards,
  UseInterceptors,
} from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import { defer, lastValueFrom, type Observable } from 'rxjs';
import { requireRunnable } from '../../options/decorated-methods.js';
import { readOptions } from '../../options/read-options.js';
import { object, optional, text } from '../../options/rules.js';
import { answerTo, HandlerFailure, WebhookException } from '../error-answers.js';
import { contentOf, refuse, type WebhookAnswer } from '../../request/webhook-answers.js';
import { markRoute } from '../handlers/handler-metadata.js';
import { type AdapterRequest, nodeRequest, receptionOf } from '../node-http.js';
import { observeHandler } from '../receiver.channels.js';
import { ReceiverReporter } from '../receiver.reporter.js';
import { isHandlerCall } from '../webhook-event.js';
import { WebhookGuard } from '../webhook.guard.js';
import { routeByPosition } from './webhook-data.decorator.js';

/**
 * Makes a method a webhook route: HEAD and POST, guarded, each event handled once, answered 204 when the method's promise resolves.
 * Any other method is rejected with 405, unless it is a sender's check of the URL. Path parameters, versions and other decorators work
 * as on any route; put filters of your own above this decorator, so that they are asked before the receiver's. Without parameter
 * decorators the method is called with `(data, event)`, as that of an `@OnWebhookEvent()`.
 *
 * @param path - as for `@Post()`; default: the controller's own path
 * @param options.receiver - name of the receiver whose rules apply; default: the only one, or `'default'`
 */
export function WebhookRoute(
  path?: string | string[],
  options: { readonly receiver?: string | undefined } = {},
): MethodDecorator {
  readOptions(ROUTE_OPTIONS, options, '@WebhookRoute()');
  return applyDecorators(
    mark(options),
    // One method can have one route only, and the guard refuses all but HEAD and POST.
    All(path),
    HttpCode(204),
    UseGuards(WebhookGuard),
    UseInterceptors(WebhookInterceptor),
    UseFilters(WebhookExceptionFilter),
  );
}

const ROUTE_OPTIONS = object<{ readonly receiver?: string | undefined }>()({
  receiver: optional(text()),
});

function mark(options: { readonly receiver?: string | undefined }): MethodDecorator {
  return (target, key, { value }) => {
    requireRunnable('@WebhookRoute', target, key, value);
    const method = value as unknown as (...args: unknown[]) => unknown;
    markRoute(method, options);
    routeByPosition(target, key, method.length);
  };
}

/** Settles the event of a `@WebhookRoute()` before its answer is sent, so that an immediate repetition finds the record. */
@Injectable()
class WebhookInterceptor implements NestInterceptor {
  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    if (isHandlerCall(context)) return next.handle();
    const reception = receptionOf(context.switchToHttp().getRequest<AdapterRequest>());
    if (reception === undefined) return next.handle();
    const name = `${context.getClass().name}.${context.getHandler().name}`;
    const response = context.switchToHttp().getResponse<{ readonly statusCode: number }>();
    const handle = async (): Promise<unknown> => {
      // Wait for the last value: a stream may fail after the first.
      const value: unknown = await lastValueFrom(next.handle(), { defaultValue: undefined });
      // A 204 has no content, but a value that JSON cannot represent would make it a 500, although the event is recorded.
      return response.statusCode === 204 ? undefined : value;
    };
    return defer(async () => {
      // An interceptor that runs before this one retries. If the event cannot be handled again, the last run stays the answer.
      const { lastRun } = reception;
      if (lastRun !== undefined && !(await reception.reopen())) return lastRun;
      // The sender disconnected while another guard, an interceptor or a pipe ran, and the event was left to its lease: handled
      // now, it could not be recorded, and would be handled again.
      if (reception.state === 'settled') throw new WebhookException(refuse('payload_incomplete'));
      return reception.handle(async () => observeHandler(name, reception.event, handle));
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
class WebhookExceptionFilter implements ExceptionFilter {
  constructor(
    private readonly adapterHost: HttpAdapterHost,
    private readonly reporter: ReceiverReporter,
  ) {}

  async catch(error: unknown, host: ArgumentsHost): Promise<void> {
    if (isHandlerCall(host)) throw error;
    const http = host.switchToHttp();
    const request = http.getRequest<AdapterRequest>();
    const reception = receptionOf(request);
    const thrown = reception?.workFailed === true ? new HandlerFailure(error) : error;
    const failure = reception?.leaseLost ?? thrown;
    const answer = answerTo(failure);
    // An interceptor may have given up on a handler that still runs: its end settles the event.
    if (reception?.state === 'open') await reception.fail();
    // The guard reported its own refusals already.
    if (!(failure instanceof WebhookException)) {
      this.reporter.report({ answer, request, event: reception?.event, error: failure });
    }
    this.write(answer, http.getResponse<ServerResponse>(), nodeRequest(request).method === 'HEAD');
  }

  private write(answer: WebhookAnswer, response: ServerResponse, isHead: boolean): void {
    const adapter = this.adapterHost.httpAdapter;
    if (adapter.isHeadersSent(response)) return;
    for (const [name, value] of Object.entries(answer.headers)) {
      adapter.setHeader(response, name, value);
    }
    const content = contentOf(answer);
    if (content !== undefined) adapter.setHeader(response, 'Content-Type', content.type);
    adapter.reply(response, isHead ? undefined : content?.body, answer.status);
  }
}
