import type { ServerResponse } from 'node:http';
import { Catch, type ArgumentsHost, type ExceptionFilter } from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import { nodeRequest, receptionOf, type AdapterRequest } from '../request-reception.js';
import { HandlerFailure, type WebhookAnswer, WebhookException } from './webhook-answer.js';
import { ReceiverReporter } from '../receiver.reporter.js';

/**
 * Answers every error on a `@WebhookRoute()` route by the answer table.
 *
 * It is bound to the method, so it runs before the application's global filters: one that answers every error with a 200 would
 * acknowledge a failed event.
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
