import {
  Injectable,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
} from '@nestjs/common';
import { defer, lastValueFrom, type Observable } from 'rxjs';
import { admittedEvent, type AdapterRequest } from './request-reception.js';

/**
 * Settles the event of a `@WebhookRoute()` route before its answer is sent, so that an immediate repetition finds the record.
 *
 * Without other interceptors between it and the method, `settleInMethods` replaces it at start-up.
 */
@Injectable()
export class WebhookInterceptor implements NestInterceptor {
  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const admitted = admittedEvent(context.switchToHttp().getRequest<AdapterRequest>());
    if (admitted === undefined) return next.handle();
    const { intake, reception } = admitted;
    const name = `${context.getClass().name}.${context.getHandler().name}`;
    // Wait for the last value: a stream may fail after the first.
    const handle = async (): Promise<unknown> =>
      lastValueFrom(next.handle(), { defaultValue: undefined });
    return defer(() => intake.runHandler(reception, name, handle));
  }
}
