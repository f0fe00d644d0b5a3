import {
  Injectable,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
} from '@nestjs/common';
import { defer, lastValueFrom, type Observable } from 'rxjs';
import { refuse, WebhookException } from './answers/webhook-answer.js';
import { ReceiverDrain } from './receiver.drain.js';
import { receptionOf, type AdapterRequest } from './request-reception.js';
import type { WebhookReception } from './replay/webhook-reception.js';
import { WebhookIntake } from './webhook.intake.js';

/**
 * Settles the event of a `@WebhookRoute()` route before its answer is sent, so that an immediate repetition finds the record.
 *
 * Pipes run inside, so a refusal by one of them frees the event too. If the sender disconnects, the handler still ends first.
 */
@Injectable()
export class WebhookInterceptor implements NestInterceptor {
  constructor(
    private readonly intake: WebhookIntake,
    private readonly drain: ReceiverDrain,
  ) {}

  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    return defer(() => this.handle(context, next));
  }

  private async handle(context: ExecutionContext, next: CallHandler): Promise<unknown> {
    const reception = receptionOf(context.switchToHttp().getRequest<AdapterRequest>());
    // The sender disconnected while another guard or interceptor ran, and the event was left to its lease: handled now, it could
    // not be recorded, and would be handled again.
    if (reception?.unsettled === false) throw new WebhookException(refuse('payload_incomplete'));
    reception?.begin();
    this.drain.enter();
    try {
      const value = await this.run(reception, next);
      if (reception !== undefined) await this.intake.complete(reception);
      return value;
    } finally {
      this.drain.leave();
    }
  }

  private async run(reception: WebhookReception | undefined, next: CallHandler): Promise<unknown> {
    try {
      // Wait for the last value: a stream may fail after the first.
      const value: unknown = await lastValueFrom(next.handle(), { defaultValue: undefined });
      reception?.requireLease();
      return value;
    } catch (error) {
      await reception?.failHandler();
      throw error;
    }
  }
}
