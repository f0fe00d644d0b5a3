import { setImmediate } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import {
  Body,
  Catch,
  Controller,
  ForbiddenException,
  HttpCode,
  Inject,
  Injectable,
  Module,
  Post,
  Scope,
  UseFilters,
  UseGuards,
  UseInterceptors,
  UsePipes,
  type CallHandler,
  type CanActivate,
  type ExceptionFilter,
  type ExecutionContext,
  type NestInterceptor,
  type PipeTransform,
} from '@nestjs/common';
import {
  APP_FILTER,
  APP_GUARD,
  APP_INTERCEPTOR,
  APP_PIPE,
  ContextIdFactory,
  REQUEST,
  type ContextId,
} from '@nestjs/core';
import { EMPTY, ignoreElements, map, timeout, type Observable } from 'rxjs';
import { z } from 'zod';
import { OnWebhookEvent, WebhookContext, WebhookData, WebhookEvent } from 'nestjs-webhook-token';
import { adapters, createFastify } from '../fixtures/adapters.js';
import { head, post } from '../fixtures/http-client.js';
import { ISSUER, signed, signedBody, startApp, type StartedApp } from '../fixtures/receiver-app.js';

let trace: unknown[] = [];
const note = (entry: unknown): void => void trace.push(entry);

@Injectable()
class NoteGuard implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    note(['guard', context.getType<string>(), context.getHandler().name, context.getClass().name]);
    const [event] = context.getArgs<[WebhookEvent]>();
    return event.event !== 'enhanced.forbidden';
  }
}

@Injectable()
class NoteInterceptor implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    note('interceptor');
    return next.handle().pipe(map((value: unknown) => value));
  }
}

@Injectable()
class TimeLimit implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    return next.handle().pipe(timeout(1));
  }
}

@Injectable()
class NoValue implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<never> {
    return next.handle().pipe(ignoreElements());
  }
}

@Injectable()
class WithoutValue {
  @OnWebhookEvent('empty.returned')
  returned(): Observable<never> {
    note('returned');
    return EMPTY;
  }

  @UseInterceptors(NoValue)
  @OnWebhookEvent('empty.intercepted')
  intercepted(): void {
    note('intercepted');
  }
}

class Doubling implements PipeTransform {
  transform(value: { n: number }): { n: number } {
    return { n: value.n * 2 };
  }
}

@Catch(RangeError)
class Forgiving implements ExceptionFilter {
  catch(): string {
    note('filter');
    return 'forgiven';
  }
}

@Catch()
class Asynchronous implements ExceptionFilter {
  async catch(error: unknown): Promise<void> {
    await setImmediate();
    if (error instanceof TypeError) throw error;
  }
}

const issuerOf: PipeTransform<WebhookEvent, string> = { transform: ({ issuer }) => issuer };

@Injectable()
class Enhanced {
  @UseGuards(NoteGuard)
  @UseInterceptors(NoteInterceptor)
  @OnWebhookEvent('enhanced.*')
  guarded(@WebhookData() data: unknown, @WebhookContext(issuerOf) issuer: string): void {
    note(['handler', data, issuer]);
  }

  @UsePipes(Doubling)
  @OnWebhookEvent('piped.all')
  piped(data: { n: number }): void {
    note(data);
  }

  @OnWebhookEvent('piped.one')
  pipedOne(@WebhookData('deep', Doubling) data: { n: number }): void {
    note(data);
  }

  @OnWebhookEvent('schema.checked')
  schema(@WebhookData({ schema: z.object({ n: z.coerce.number() }) }) data: unknown): void {
    note(data);
  }

  @UseFilters(Forgiving)
  @OnWebhookEvent('filtered.range')
  filteredRange(): void {
    throw new RangeError('known');
  }

  @UseFilters(Forgiving)
  @OnWebhookEvent('filtered.other')
  filteredOther(): void {
    throw new TypeError('unknown');
  }

  @UseFilters(Asynchronous)
  @OnWebhookEvent('awaited.*')
  filteredLater(_: unknown, { event }: WebhookEvent): void {
    throw event === 'awaited.range' ? new RangeError('known') : new TypeError('unknown');
  }

  @UseInterceptors(TimeLimit)
  @OnWebhookEvent('limited.time')
  async limited(_: unknown, { jti }: WebhookEvent): Promise<void> {
    note(jti);
    if (trace.length === 1) await new Promise(() => {});
  }

  @OnWebhookEvent('stacked.a')
  @OnWebhookEvent(['stacked.b', 'stacked.*'])
  stacked(_: unknown, event: WebhookEvent): void {
    note(event.event);
  }
}

let built = 0;

@Injectable({ scope: Scope.REQUEST })
class PerEvent {
  readonly number = ++built;
  constructor(@Inject(REQUEST) readonly event: WebhookEvent) {}
}

@Injectable({ scope: Scope.REQUEST })
class DirectlyScoped {
  constructor(private readonly perEvent: PerEvent) {}

  @OnWebhookEvent('scoped.event')
  on(data: unknown): void {
    note(['direct', this.perEvent.number, this.perEvent.event.event, data]);
  }
}

@Injectable()
class IndirectlyScoped {
  constructor(private readonly perEvent: PerEvent) {}

  @OnWebhookEvent('scoped.event')
  on(): void {
    note(['indirect', this.perEvent.number]);
  }
}

@Injectable({ scope: Scope.REQUEST, durable: true })
class TenantPool {
  readonly number = ++built;
  constructor(@Inject(REQUEST) readonly request: unknown) {}
}

@Injectable()
class Durable {
  constructor(private readonly pool: TenantPool) {}

  @OnWebhookEvent('scoped.event')
  on(): void {
    note(['durable', this.pool.number, this.pool.request]);
  }
}

@Injectable({ scope: Scope.TRANSIENT })
class Transient {
  readonly constructed = true;

  @OnWebhookEvent('scoped.transient')
  on(): void {
    note(['transient', this.constructed]);
  }
}

class Base {
  @OnWebhookEvent('inherited.event')
  on(): void {
    note(this.constructor.name);
  }

  @OnWebhookEvent('inherited.overridden')
  overridden(@WebhookContext() event: unknown, @WebhookData('id') id: unknown): void {
    note(['base', event, id]);
  }
}
@Injectable()
class Derived extends Base {
  @OnWebhookEvent('inherited.overridden')
  override overridden(data: unknown, event: WebhookEvent): void {
    note([data, event.event]);
  }
}

/** Nest finds the guards of a controller in another way than those of a provider. */
@Controller('orders')
class GuardedController {
  @UseGuards(NoteGuard)
  @UseInterceptors(NoteInterceptor)
  @UseFilters(Forgiving)
  @OnWebhookEvent('enhanced.*')
  guarded(@WebhookData(undefined, Doubling) data: unknown): void {
    note(data);
    throw new RangeError('known');
  }

  @Post()
  @HttpCode(200)
  @OnWebhookEvent('order.posted')
  posted(@Body() order: unknown): void {
    note(order);
  }
}

@Controller({ path: 'scoped', scope: Scope.REQUEST })
class ScopedController {
  @UseGuards(NoteGuard)
  @OnWebhookEvent('enhanced.*')
  guarded(): void {
    note('scoped');
  }
}

@Injectable({ scope: Scope.REQUEST })
class OfItsModule {
  constructor(@Inject('NAME') private readonly name: string) {}

  @OnWebhookEvent('scoped.module')
  on(): void {
    note(this.name);
  }
}

@Module({ providers: [OfItsModule, { provide: 'NAME', useValue: 'one' }] })
class One {}

@Module({ providers: [OfItsModule, { provide: 'NAME', useValue: 'other' }] })
class Other {}

@Injectable()
class EventFirst {
  @OnWebhookEvent('event.first')
  on(event: WebhookEvent, data: unknown): void {
    note([event.event, data]);
  }
}

let fail: unknown[] = [];

@Injectable()
class Several {
  @OnWebhookEvent('several.all')
  async first(): Promise<void> {
    await Promise.resolve();
    note('first');
    if (fail.length > 0) throw fail[0];
  }
  @OnWebhookEvent('several.*')
  second(): void {
    note('second');
    if (fail.length > 1) throw fail[1];
  }
}

@Catch()
class SwallowAll implements ExceptionFilter {
  catch(): string {
    note('global filter');
    return 'swallowed';
  }
}
@Injectable()
class RefuseAll implements CanActivate {
  canActivate(): boolean {
    note('global guard');
    return false;
  }
}
@Injectable()
class NoteGlobally implements NestInterceptor, PipeTransform {
  intercept(_: ExecutionContext, next: CallHandler): Observable<unknown> {
    note('global interceptor');
    return next.handle();
  }
  transform(value: unknown): unknown {
    note('global pipe');
    return value;
  }
}

describe('handlers', () => {
  let started: StartedApp;
  const start = async (...providers: unknown[]): Promise<string> => {
    started = await startApp(createFastify(), { providers });
    return started.origin;
  };
  const deliver = (origin: string, event: string, data?: object): Promise<{ status: number }> =>
    head(origin, signed({ event, data }));
  beforeEach(() => {
    trace = [];
    fail = [];
    built = 0;
  });
  afterEach(() => started.app.close());

  it('run with their own guards and interceptors, in the context type "webhook"', async () => {
    const origin = await start(Enhanced);

    expect((await deliver(origin, 'enhanced.ok', { a: 1 })).status).toBe(204);
    expect(trace).toEqual([
      ['guard', 'webhook', 'guarded', 'Enhanced'],
      'interceptor',
      ['handler', { a: 1 }, 'https://shop.example'],
    ]);
    expect((await deliver(origin, 'enhanced.forbidden')).status).toBe(403);
  });

  it.each(adapters)(
    'of a controller run with its guards, interceptors, pipes and filters, on %s',
    async (_, create) => {
      started = await startApp(create(), { controllers: [GuardedController] });

      expect((await deliver(started.origin, 'enhanced.ok', { n: 2 })).status).toBe(204);
      expect(trace).toEqual([
        ['guard', 'webhook', 'guarded', 'GuardedController'],
        'interceptor',
        { n: 4 },
        'filter',
      ]);
      expect((await deliver(started.origin, 'enhanced.forbidden')).status).toBe(403);
    },
  );

  it('of a request-scoped controller run with its guards', async () => {
    started = await startApp(createFastify(), { controllers: [ScopedController] });

    expect((await deliver(started.origin, 'enhanced.ok')).status).toBe(204);
    expect((await deliver(started.origin, 'enhanced.forbidden')).status).toBe(403);
    expect(trace.filter((entry) => entry === 'scoped')).toHaveLength(1);
  });

  it.each(adapters)('leave the arguments of a route alone, on %s', async (_, create) => {
    started = await startApp(create(), { controllers: [GuardedController] });
    const answer = await fetch(`${started.origin}/orders`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: '{"from":"a form"}',
    });
    expect((await deliver(started.origin, 'order.posted', { from: 'a sender' })).status).toBe(204);

    expect(answer.status).toBe(200);
    expect(trace).toEqual([{ from: 'a form' }, { from: 'a sender' }]);
  });

  it('get the event first if that is what the first parameter takes', async () => {
    const origin = await start(EventFirst);

    expect((await deliver(origin, 'event.first', { a: 1 })).status).toBe(204);
    expect(trace).toEqual([['event.first', { a: 1 }]]);
  });

  it('get the data that their own pipes return', async () => {
    const origin = await start(Enhanced);
    await deliver(origin, 'piped.all', { n: 2 });
    await deliver(origin, 'piped.one', { deep: { n: 4 } });

    expect(trace).toEqual([{ n: 4 }, { n: 8 }]);
  });

  it('get the output of a standard schema; invalid data is rejected with 422', async () => {
    const origin = await start(Enhanced);

    expect((await deliver(origin, 'schema.checked', { n: '5' })).status).toBe(204);
    expect(trace).toEqual([{ n: 5 }]);
    const refused = await post(origin, signedBody('{"n":"x"}', { event: 'schema.checked' }));
    expect(refused).toMatchObject({ status: 422, json: { code: 'invalid_payload' } });
    expect(refused.json?.['errors']).toEqual([expect.stringMatching(/^n: /)]);
  });

  it('can handle errors in their own filters', async () => {
    const origin = await start(Enhanced);

    expect((await deliver(origin, 'filtered.range')).status).toBe(204);
    expect((await deliver(origin, 'filtered.other')).status).toBe(500);
    expect(trace).toEqual(['filter']);
    expect((await deliver(origin, 'awaited.range')).status).toBe(204);
    expect((await deliver(origin, 'awaited.other')).status).toBe(500);
  });

  it('free an event when an interceptor has limited their time', async () => {
    const origin = await start(Enhanced);
    const event = { event: 'limited.time', txn: 'one' };

    expect((await head(origin, signed(event))).status).toBe(500);
    expect((await head(origin, signed(event))).status).toBe(204);
    expect(trace).toHaveLength(2);
  });

  it.each(['returned', 'intercepted'])(
    'succeed if an Observable completes without a value: %s',
    async (name) => {
      const origin = await start(WithoutValue);

      expect((await deliver(origin, `empty.${name}`)).status).toBe(204);
      expect(trace).toEqual([name]);
    },
  );

  it('run once for each event, however many of their patterns match', async () => {
    const origin = await start(Enhanced);
    await deliver(origin, 'stacked.a');
    await deliver(origin, 'stacked.b');

    expect(trace).toEqual(['stacked.a', 'stacked.b']);
  });

  it('can be request-scoped, and share the instances that are created for an event', async () => {
    const origin = await start(PerEvent, DirectlyScoped, IndirectlyScoped);
    await deliver(origin, 'scoped.event', { a: 1 });
    await deliver(origin, 'scoped.event', { a: 2 });

    expect(trace).toHaveLength(4);
    expect(trace).toEqual(
      expect.arrayContaining([
        ['direct', 1, 'scoped.event', { a: 1 }],
        ['indirect', 1],
        ['direct', 2, 'scoped.event', { a: 2 }],
        ['indirect', 2],
      ]),
    );
  });

  it('share durable providers as the ContextIdStrategy of the application says', async () => {
    const trees = new Map<string, ContextId>();
    ContextIdFactory.apply({
      attach(contextId, { issuer: tenant }: WebhookEvent) {
        const tree = trees.get(tenant) ?? ContextIdFactory.create();
        trees.set(tenant, tree);
        return {
          resolve: (info) => (info.isTreeDurable ? tree : contextId),
          payload: { tenant },
        };
      },
    });
    try {
      const origin = await start(TenantPool, Durable, PerEvent, DirectlyScoped);
      await deliver(origin, 'scoped.event');
      await deliver(origin, 'scoped.event');
    } finally {
      ContextIdFactory.apply(undefined as never);
    }

    const durable = ['durable', expect.any(Number), { tenant: ISSUER }];
    const found = trace.filter((entry) => (entry as unknown[])[0] === 'durable') as unknown[][];
    expect(found).toEqual([durable, durable]);
    expect(found[0]![1]).toBe(found[1]![1]);
    const scoped = trace.filter((entry) => (entry as unknown[])[0] === 'direct') as unknown[][];
    expect(scoped.map(([, , event]) => event)).toEqual(['scoped.event', 'scoped.event']);
    expect(scoped[0]![1]).not.toBe(scoped[1]![1]);
  });

  it('of one class in two modules each get the providers of their own', async () => {
    started = await startApp(createFastify(), { imports: [One, Other] });
    await deliver(started.origin, 'scoped.module');

    expect(trace).toEqual(expect.arrayContaining(['one', 'other']));
    expect(trace).toHaveLength(2);
    expect(started.logger.at('warn').join('\n')).toContain(
      'Mapped {scoped.module} to OfItsModule.on (again: its class has several instances, and each handles every event; provide it in one module, and import that module)',
    );
  });

  it('can override a handler, with parameters of their own', async () => {
    const origin = await start(Derived);
    await deliver(origin, 'inherited.overridden', { id: 7 });

    expect(trace).toEqual([[{ id: 7 }, 'inherited.overridden']]);
  });

  it('can be transient or inherited', async () => {
    const origin = await start(Transient, Derived, { provide: 'alias', useExisting: Derived });
    await deliver(origin, 'scoped.transient');
    await deliver(origin, 'inherited.event');

    expect(trace).toEqual([['transient', true], 'Derived']);
  });

  it.each([Scope.REQUEST, Scope.TRANSIENT])(
    'can be provided by a factory of scope %p under the token of their class',
    async (scope) => {
      const origin = await start(PerEvent, {
        provide: DirectlyScoped,
        scope,
        useFactory: (perEvent: PerEvent) => new DirectlyScoped(perEvent),
        inject: [PerEvent],
      });

      expect((await deliver(origin, 'scoped.event', { a: 1 })).status).toBe(204);
      expect(trace).toEqual([['direct', 1, 'scoped.event', { a: 1 }]]);
    },
  );

  it('all run to the end, and a failure of one is the answer', async () => {
    const origin = await start(Several);
    fail = [new ForbiddenException('not you')];

    expect((await deliver(origin, 'several.all')).status).toBe(403);
    expect(trace).toEqual(expect.arrayContaining(['first', 'second']));
  });

  it('answer 500 if several fail, and every failure is logged', async () => {
    const origin = await start(Several);
    fail = [new ForbiddenException('one'), new Error('two')];

    expect((await deliver(origin, 'several.all')).status).toBe(500);
    expect(started.logger.at('error').join()).toMatch(/one[^]*two/);
  });

  it.each(adapters)(
    'answer 500 and log one failure for an AggregateError, on %s',
    async (_, create) => {
      started = await startApp(create(), { providers: [Several] });
      fail = [
        new AggregateError([new ForbiddenException('a'), new ForbiddenException('b')], 'both'),
      ];

      expect((await deliver(started.origin, 'several.all')).status).toBe(500);
      expect(started.logger.at('error')).toEqual([expect.stringMatching(/both[^]*: a[^]*: b/)]);
    },
  );

  it('run without global guards, pipes, interceptors and filters', async () => {
    const origin = await start(
      Several,
      { provide: APP_GUARD, useClass: RefuseAll },
      { provide: APP_FILTER, useClass: SwallowAll },
      { provide: APP_INTERCEPTOR, useClass: NoteGlobally },
      { provide: APP_PIPE, useClass: NoteGlobally },
    );

    expect((await deliver(origin, 'several.all')).status).toBe(204);
    fail = [new Error('failed')];
    expect((await deliver(origin, 'several.all')).status).toBe(500);
    expect(trace.filter((entry) => String(entry).startsWith('global'))).toEqual([]);
  });

  it('fail if they throw an HttpException with a success status', async () => {
    const origin = await start(Several);
    const { HttpException } = await import('@nestjs/common');
    fail = [new HttpException('fine', 200)];

    expect((await deliver(origin, 'several.all')).status).toBe(500);
  });

  it('are reported as missing once for each event name', async () => {
    const origin = await start();

    expect((await deliver(origin, 'unknown.event')).status).toBe(204);
    expect((await deliver(origin, 'unknown.event')).status).toBe(204);
    expect(started.logger.at('warn').filter((line) => line.includes('unknown.event'))).toHaveLength(
      1,
    );
  });
});
