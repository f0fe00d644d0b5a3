import {
  Injectable,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
} from '@nestjs/common';
import { catchError, mergeMap, type Observable } from 'rxjs';
import { HandlerFailure } from './answers/handler-failure.js';
import { receptionOf, type AdapterRequest } from './request/reception-of-request.js';

/**
 * Settles the event of a `@WebhookEndpoint()` route before its answer is sent, so that a sender that
 * repeats itself at once finds it on record. Pipes run inside, so their refusals free the event too.
 */
@Injectable()
export class WebhookInterceptor implements NestInterceptor {
  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const reception = receptionOf(context.switchToHttp().getRequest<AdapterRequest>());
    return next.handle().pipe(
      mergeMap(async (value: unknown) => {
        await reception?.complete();
        return value;
      }),
      catchError(async (error: unknown) => {
        await reception?.fail();
        throw new HandlerFailure(error);
      }),
    );
  }
}
