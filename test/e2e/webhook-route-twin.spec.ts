import { afterEach, describe, expect, it } from '@jest/globals';
import {
  Controller,
  Injectable,
  UseInterceptors,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
} from '@nestjs/common';
import { OnWebhookEvent } from '../../lib/receiver/decorators/on-webhook-event.decorator.js';
import { WebhookData } from '../../lib/receiver/decorators/webhook-data.decorator.js';
import { WebhookRoute } from '../../lib/receiver/decorators/webhook-route.decorator.js';
import { adapters } from '../fixtures/adapters.js';
import { head, post } from '../fixtures/http-client.js';
import {
  receiverOptions,
  signed,
  signedBody,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';

const handlerNames: string[] = [];
const seen: unknown[] = [];

/** Records the handler's name, by which an OpenAPI document, a tracer or a log identifies a route. */
@Injectable()
class NoteHandlerName implements NestInterceptor {
  intercept(context: ExecutionContext, next: CallHandler): ReturnType<CallHandler['handle']> {
    handlerNames.push(context.getHandler().name);
    return next.handle();
  }
}

@UseInterceptors(NoteHandlerName)
@Controller('hooks')
class Hooks {
  @WebhookRoute('orders')
  orders(): void {}

  @WebhookRoute('refunds')
  refunds(): void {}

  refundsHead(): string {
    return 'no route';
  }
}

@Controller('both')
class Both {
  @WebhookRoute()
  @OnWebhookEvent('order.created')
  first(@WebhookData() data: unknown): void {
    seen.push(['first', data]);
  }

  @OnWebhookEvent('order.paid')
  @WebhookRoute('second')
  second(@WebhookData() data: unknown): void {
    seen.push(['second', data]);
  }
}

describe.each(adapters)('the HEAD route of @WebhookRoute on %s', (_, createAdapter) => {
  let started: StartedApp;
  afterEach(() => started.app.close());

  it('has its own name, which no method of the controller has', async () => {
    handlerNames.length = 0;
    started = await startApp(createAdapter(), { controllers: [Hooks] });
    const { origin } = started;

    await head(origin, signed(), { path: '/hooks/orders' });
    await post(origin, signedBody('{}'), { path: '/hooks/orders' });
    await head(origin, signed(), { path: '/hooks/refunds' });
    await post(origin, signedBody('{}'), { path: '/hooks/refunds' });

    expect(handlerNames).toEqual(['ordersHead', 'orders', 'refundsHead_', 'refunds']);
    expect(new Hooks().refundsHead()).toBe('no route');
  });

  it.each([
    ['order.created', 'first'],
    ['order.paid', 'second'],
  ])('is not a second handler of "%s"', async (event, method) => {
    seen.length = 0;
    started = await startApp(createAdapter(), { options: receiverOptions(), controllers: [Both] });

    const answer = await head(started.origin, signed({ event, data: { id: 'o1' } }));

    expect(answer.status).toBe(204);
    expect(seen).toEqual([[method, { id: 'o1' }]]);
  });
});

describe('@OnWebhookEvent without an event', () => {
  it('throws when it is applied', () => {
    const define = (): unknown => {
      class Handlers {
        @OnWebhookEvent([])
        never(): void {}
      }
      return Handlers;
    };

    expect(define).toThrow(
      expect.objectContaining({
        code: 'invalid_configuration',
        problems: [{ path: 'Handlers.never', message: expect.stringContaining('"**"') }],
      }),
    );
  });
});
