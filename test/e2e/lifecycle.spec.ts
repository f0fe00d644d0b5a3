import { once } from 'node:events';
import { Agent, type IncomingMessage, request as httpRequest } from 'node:http';
import { PassThrough, Readable } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import {
  Catch,
  Controller,
  HttpException,
  Injectable,
  NotFoundException,
  Post,
  RequestTimeoutException,
  UseGuards,
  UseFilters,
  UseInterceptors,
  type ArgumentsHost,
  type CallHandler,
  type NestInterceptor,
} from '@nestjs/common';
import { BaseExceptionFilter } from '@nestjs/core';
import { ExecutionContextHost } from '@nestjs/core/helpers/execution-context-host.js';
import { IsString } from 'class-validator';
import { catchError, concat, EMPTY, from, map, merge, of, throwError, type Observable } from 'rxjs';
import { TestClock } from 'nestjs-webhook-token/testing';
import {
  OnWebhookEvent,
  WebhookRoute,
  WebhookDispatcher,
  WebhookGuard,
  WebhookVerifier,
} from 'nestjs-webhook-token';
import { adapters } from '../fixtures/adapters.js';
import { Gate } from '../fixtures/gate.js';
import { head, post } from '../fixtures/http-client.js';
import { ScriptedReplayStore } from '../fixtures/scripted-replay.store.js';
import {
  receiverOptions,
  signed,
  signedBody,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';

let runs: string[] = [];
let thrown: unknown;
let stream: () => Observable<unknown> = () => EMPTY;
let onSlow: () => Promise<void> = () => Promise.resolve();

class Order {
  @IsString() id!: string;
}

/** Answers a request when this resolves, like an interceptor with a timeout. */
let givesUp: Promise<void> | undefined;

@Injectable()
class GivesUp implements NestInterceptor {
  intercept(_: unknown, next: CallHandler): Observable<unknown> {
    if (givesUp === undefined) return next.handle();
    const timeout = from(givesUp).pipe(
      map(() => {
        throw new RequestTimeoutException();
      }),
    );
    return merge(next.handle(), timeout);
  }
}

class Known extends Error {}

@Catch(Known)
class KnownFilter extends BaseExceptionFilter {
  override catch(_error: Known, host: ArgumentsHost): void {
    super.catch(new NotFoundException('unknown to us'), host);
  }
}

@Injectable()
class SeesErrors implements NestInterceptor {
  intercept(_: unknown, next: CallHandler): Observable<unknown> {
    return next.handle().pipe(
      catchError((error: unknown) => {
        runs.push(`interceptor ${(error as object).constructor.name}`);
        return throwError(() => error);
      }),
    );
  }
}

@Injectable()
class Handlers {
  @OnWebhookEvent('throws.anything')
  onThrows(): void {
    throw thrown;
  }
  @OnWebhookEvent('order.created')
  onOrder(_order: Order): void {
    runs.push('one');
  }
  @OnWebhookEvent('order.*')
  onAnyOrder(_order: Order): void {
    runs.push('two');
  }
}

@Controller()
class Routes {
  @WebhookRoute('throws')
  throws(): void {
    throw thrown;
  }
  @WebhookRoute('stream')
  streams(): Observable<unknown> {
    runs.push('stream');
    return stream();
  }
  @WebhookRoute('slow')
  async slow(): Promise<void> {
    runs.push('slow');
    await onSlow();
  }
  @UseFilters(KnownFilter)
  @WebhookRoute('known')
  known(): void {
    throw thrown;
  }
  @WebhookRoute('known-below')
  @UseFilters(KnownFilter)
  knownBelow(): void {
    throw thrown;
  }
  @UseInterceptors(SeesErrors)
  @WebhookRoute('seen')
  seen(): void {
    throw thrown;
  }
}

@UseGuards(WebhookGuard)
@Controller('guarded')
class GuardedTwice {
  @WebhookRoute('endpoint')
  endpoint(): void {
    runs.push('endpoint');
  }
  @UseGuards(WebhookGuard)
  @Post('route')
  route(): void {
    runs.push('route');
  }
}

describe.each(adapters)('on %s', (_, createAdapter) => {
  let started: StartedApp;
  let store: ScriptedReplayStore;
  let clock: TestClock;
  beforeEach(async () => {
    runs = [];
    givesUp = undefined;
    store = new ScriptedReplayStore();
    clock = new TestClock(Date.now());
    started = await startApp(createAdapter(), {
      // Shorter than a receiver waits for its store.
      options: { ...receiverOptions({ replay: { store } }), clock, shutdownTimeout: '8s' },
      providers: [Handlers],
      controllers: [Routes, GuardedTwice],
      configure: (app) => void app.useGlobalInterceptors(new GivesUp()),
    });
  });
  afterEach(() => started.app.close());

  it('ends the connection of a request during which the shutdown begins', async () => {
    const { origin, app } = started;
    const gate = new Gate();
    onSlow = () => gate.pass();
    const agent = new Agent({ keepAlive: true });
    const headers = { authorization: `Bearer ${signed()}` };
    const request = httpRequest(`${origin}/slow`, { method: 'HEAD', agent, headers }).end();
    await gate.reached;
    const closed = app.close();
    let refused = await head(origin, signed());
    while (refused.status !== 503) refused = await head(origin, signed());
    gate.open();
    const [answer] = (await once(request, 'response')) as [IncomingMessage];

    expect([answer.statusCode, answer.headers.connection]).toEqual([204, 'close']);
    await closed;
    agent.destroy();
  });

  it('names the remedy if the guard is bound to a handler of messages', async () => {
    const context = new ExecutionContextHost([{}]);
    context.setType('rpc');

    await expect(started.app.get(WebhookGuard).canActivate(context)).rejects.toThrow(
      'WebhookGuard guards HTTP routes',
    );
  });

  const status = (value: unknown): HttpException => new HttpException('no', value as number);
  it.each<[string, () => unknown]>([
    ['a string as status', () => status('ECONNREFUSED')],
    ['an invalid status', () => status(99)],
    ['no status', () => status(undefined)],
    [
      'an error whose getter throws',
      () =>
        Object.assign(status(400), {
          getStatus: () => {
            throw new Error('getter');
          },
        }),
    ],
    ['a message that is not a string', () => Object.assign(status(400), { message: 1n })],
    [
      'messages that are not strings',
      () => new HttpException({ message: [Object.create(null)] }, 400),
    ],
    ['nothing', () => undefined],
  ])('answers if a handler throws %s, and the process keeps running', async (_name, make) => {
    thrown = make();
    const { origin } = started;

    const answers = [
      await head(origin, signed({ event: 'throws.anything' })),
      await head(origin, signed(), { path: '/throws' }),
    ];

    for (const answer of answers) expect([400, 422, 500]).toContain(answer.status);
    thrown = new NotFoundException('gone');
    expect((await head(origin, signed({ event: 'throws.anything' }))).status).toBe(404);
  });

  it('answers 422 once if two handlers reject the data as invalid', async () => {
    const answer = await post(started.origin, signedBody('{"id":1}'));

    expect(answer).toMatchObject({
      status: 422,
      json: { code: 'invalid_payload', errors: ['id must be a string'] },
    });
    expect(started.logger.at('error')).toEqual([]);
  });

  it('treats an Observable that fails after a value as a failure, an empty one as a success', async () => {
    const { origin } = started;
    const token = signed();
    stream = () =>
      concat(
        of(1),
        throwError(() => new Error('late')),
      );
    expect((await head(origin, token, { path: '/stream' })).status).toBe(500);
    stream = () => EMPTY;
    expect((await head(origin, token, { path: '/stream' })).status).toBe(204);
    expect(runs).toEqual(['stream', 'stream']);
  });

  it('keeps the event reserved while its handler runs, even if the sender disconnects', async () => {
    const { origin } = started;
    const token = signed();
    let finish = (): void => undefined;
    const entered = new Promise<void>((enter) => {
      onSlow = () => {
        enter();
        return new Promise((resolve) => (finish = resolve));
      };
    });
    const aborted = httpRequest(`${origin}/slow`, {
      method: 'HEAD',
      headers: { authorization: `Bearer ${token}` },
    });
    aborted.on('error', () => undefined);
    aborted.end();
    await entered;
    aborted.destroy();
    await turn();

    expect((await head(origin, token, { path: '/slow' })).status).toBe(409);
    finish();
    let answer = await head(origin, token, { path: '/slow' });
    while (answer.status === 409) answer = await head(origin, token, { path: '/slow' });
    expect([answer.status, answer.headers['webhook-duplicate']]).toEqual([204, 'true']);
    expect(runs).toEqual(['slow']);
  });

  it('keeps the event reserved while its handler runs, even if its lease ends unnoticed', async () => {
    const { app, origin } = await startApp(createAdapter(), {
      options: { ...receiverOptions(), clock },
      controllers: [Routes],
    });
    const token = signed();
    const gate = new Gate();
    onSlow = () => gate.pass();
    const first = head(origin, token, { path: '/slow' });
    await gate.reached;
    clock.set(clock.now() + 31_000);

    const copy = await head(origin, token, { path: '/slow' });
    gate.open();
    expect([copy.status, (await first).status]).toEqual([409, 204]);
    expect((await head(origin, token, { path: '/slow' })).headers['webhook-duplicate']).toBe(
      'true',
    );
    expect(runs).toEqual(['slow']);
    await app.close();
  });

  it('keeps the event reserved while its handler runs, even if an interceptor gives up', async () => {
    const { origin } = started;
    const token = signed();
    const gate = new Gate();
    onSlow = () => gate.pass();
    givesUp = gate.reached;

    expect((await head(origin, token, { path: '/slow' })).status).toBe(408);
    expect((await head(origin, token, { path: '/slow' })).status).toBe(409);
    gate.open();
    let answer = await head(origin, token, { path: '/slow' });
    while (answer.status === 409) answer = await head(origin, token, { path: '/slow' });
    expect([answer.status, answer.headers['webhook-duplicate']]).toEqual([204, 'true']);
    expect(runs).toEqual(['slow']);
  });

  it('frees an event that could not be recorded after an interceptor gave up', async () => {
    const { origin, logger } = started;
    const token = signed();
    const gate = new Gate();
    onSlow = () => gate.pass();
    givesUp = gate.reached;
    store.commitFailure = new Error('away');

    expect((await head(origin, token, { path: '/slow' })).status).toBe(408);
    gate.open();
    while (!logger.at('warn').join().includes('did not record it')) await clock.advance(1_000);
    store.commitFailure = undefined;
    givesUp = undefined;

    expect((await head(origin, token, { path: '/slow' })).status).toBe(204);
    expect(runs).toEqual(['slow', 'slow']);
  });

  it('waits at shutdown until the event of a guarded route is recorded', async () => {
    const { app, origin, logger } = started;
    store.commitGate = new Gate();

    expect((await post(origin, signedBody('{}'), { path: '/guarded/route' })).status).toBe(201);
    await store.commitGate.reached;
    const closing = app.close();
    await clock.advance(8_000);
    await closing;
    store.commitGate.open();

    expect(logger.at('warn').join()).toContain('1 webhook(s) were still being handled');
  });

  it('waits at shutdown for the handling of a verified request', async () => {
    const { app, logger } = started;
    const gate = new Gate();
    const headers = { authorization: `Bearer ${signed()}` };
    const verified = app
      .get(WebhookVerifier)
      .verify({ method: 'HEAD', headers }, { handle: () => gate.pass() });
    await gate.reached;
    const closing = app.close();
    await clock.advance(8_000);
    await closing;
    gate.open();

    expect((await verified).signal.aborted).toBe(true);
    expect(logger.at('warn').join()).toContain('1 webhook(s) were still being handled');
  });

  it('ends a shutdown while a handler runs and the test clock stands still', async () => {
    const gate = new Gate();
    onSlow = () => gate.pass();
    const { app, origin, logger } = await startApp(createAdapter(), {
      options: { ...receiverOptions(), clock, shutdownTimeout: 1 },
      controllers: [Routes],
    });
    const answer = head(origin, signed(), { path: '/slow' });
    await gate.reached;
    const closing = app.close();
    const isGivenUp = (): boolean =>
      logger.at('warn').join().includes('1 webhook(s) were still being handled');
    while (!isGivenUp()) await new Promise((resolve) => setImmediate(resolve));
    // Nest 11 on Fastify waits for the answer.
    gate.open();
    await closing;

    expect((await answer).status).toBe(204);
  });

  it("passes an endpoint's error to its interceptors and answers accordingly", async () => {
    thrown = new Known('for those who know it');

    expect((await head(started.origin, signed(), { path: '/seen' })).status).toBe(500);
    expect(runs).toEqual(['interceptor Known']);
  });

  it("lets an endpoint's own filters answer the errors that they catch", async () => {
    const { origin } = started;
    thrown = new Known('for those who know it');
    const token = signed();

    expect(await post(origin, signedBody('{}'), { path: '/known' })).toMatchObject({ status: 404 });
    expect((await head(origin, token, { path: '/known' })).status).toBe(404);
    thrown = new Error('unknown');
    // The event was released, so its copy is handled again.
    expect((await head(origin, token, { path: '/known' })).status).toBe(500);
  });

  it('answers by its own table if the filters are below the decorator', async () => {
    thrown = new Known('for those who know it');

    const answer = await head(started.origin, signed(), { path: '/known-below' });

    expect([answer.status, answer.headers['webhook-error']]).toEqual([500, 'handler_failed']);
  });

  it('verifies once if the guard is bound twice', async () => {
    const { origin } = started;

    expect((await post(origin, signedBody('{}'), { path: '/guarded/endpoint' })).status).toBe(204);
    expect((await post(origin, signedBody('{}'), { path: '/guarded/route' })).status).toBe(201);
    expect(runs).toEqual(['endpoint', 'route']);
  });

  it('logs a failing store once, and does not reveal its error to the sender', async () => {
    const { origin, logger } = started;
    store.failure = new Error('connect ECONNREFUSED to the store');

    const answers = [
      await post(origin, signedBody('{"id":"1"}')),
      await post(origin, signedBody('{"id":"2"}')),
    ];
    store.failure = undefined;
    expect((await post(origin, signedBody('{"id":"3"}'))).status).toBe(204);

    expect(answers.map(({ status: code }) => code)).toEqual([503, 503]);
    expect(answers.map(({ text }) => text).join()).not.toContain('ECONNREFUSED');
    expect(logger.at('error').filter((line) => line.includes('ECONNREFUSED'))).toHaveLength(1);
    expect(logger.lines).toContainEqual(expect.stringContaining('accepts webhooks again'));
  });

  it('validates an event from WebhookVerifier when it is dispatched', async () => {
    const { app } = started;
    const { token, body } = signedBody('{"id":42}');
    const event = await app.get(WebhookVerifier).verify({
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body,
    });

    await expect(app.get(WebhookDispatcher).dispatch(event)).rejects.toThrow();
    expect(runs).toEqual([]);
  });

  it('reads a stream of strings like one of bytes, and rejects one that was read before', async () => {
    const verifier = started.app.get(WebhookVerifier);
    const { token } = signedBody('ab');
    const request = { method: 'POST', headers: { authorization: `Bearer ${token}` } };
    const ended = Readable.from(['ab']);
    ended.resume();
    await once(ended, 'end');
    const begun = Readable.from(['a', 'b']);
    await once(begun, 'data');
    begun.pause();

    for (const body of [ended, begun]) {
      await expect(verifier.verify({ ...request, body })).rejects.toMatchObject({
        code: 'payload_consumed',
      });
    }
    const event = await verifier.verify({ ...request, body: Readable.from(['a', 'b']) });
    expect(event.data).toEqual(Buffer.from('ab'));
  });

  it('keeps the process running if a stream fails after its refusal', async () => {
    const body = new PassThrough();
    body.write('covered by no hash');
    const verifying = started.app.get(WebhookVerifier).verify({
      method: 'POST',
      headers: { authorization: `Bearer ${signed()}` },
      body,
    });
    await expect(verifying).rejects.toMatchObject({ code: 'hash_required' });

    const closed = new Promise((resolve) => body.once('close', resolve));
    body.destroy(new Error('the sender is gone'));
    await closed;
  });

  it.each([
    ['too deep', '['.repeat(65) + ']'.repeat(65), 'nests more than 64 levels'],
    ['too large to be parsed', '['.repeat(300_000), 'has more than 100000 members'],
  ])('rejects a body of brackets that is %s', async (_, brackets, problem) => {
    expect(await post(started.origin, signedBody(Buffer.from(brackets)))).toMatchObject({
      status: 400,
      json: { code: 'invalid_payload', detail: expect.stringContaining(`the body ${problem}`) },
    });
  });
});
