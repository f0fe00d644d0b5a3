import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import {
  Controller,
  ForbiddenException,
  HttpException,
  Injectable,
  Logger,
  Post,
  UseGuards,
  type CanActivate,
} from '@nestjs/common';
import { IsEmail, IsInt } from 'class-validator';
import { z } from 'zod';
import { createTokenSigner, type WebhookTokenInput } from 'nestjs-webhook-token/token';
import { InProcessQueue, type WebhookReceiverOptions } from 'nestjs-webhook-token';
import { OnWebhookEvent } from '../../lib/receiver/decorators/on-webhook-event.decorator.js';
import { WebhookData } from '../../lib/receiver/decorators/webhook-data.decorator.js';
import { WebhookRoute } from '../../lib/receiver/decorators/webhook-route.decorator.js';
import { WebhookGuard } from '../../lib/receiver/webhook.guard.js';
import { createExpress } from '../fixtures/adapters.js';
import { Gate } from '../fixtures/gate.js';
import { head, post, send, type Answer } from '../fixtures/http-client.js';
import {
  ISSUER,
  SECRET,
  receiverOptions,
  signed,
  signedBody,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';
import { ScriptedReplayStore } from '../fixtures/scripted-replay.store.js';

class Order {
  @IsInt()
  total!: number;
  @IsEmail()
  email!: string;
}

class Throttled extends HttpException {
  constructor() {
    super('slow down', 429);
  }
}

@Injectable()
class Refusing implements CanActivate {
  canActivate(): boolean {
    throw new Throttled();
  }
}

@Injectable()
class Closed implements CanActivate {
  canActivate(): boolean {
    return false;
  }
}

let thrown: unknown;

@Injectable()
class Orders {
  @OnWebhookEvent('order.created')
  created(_order: Order): void {}

  @OnWebhookEvent('order.shipped')
  shipped(@WebhookData({ schema: z.object({ parcels: z.number() }) }) _data: unknown): void {}

  @UseGuards(Closed)
  @OnWebhookEvent('order.closed')
  closed(): void {}

  @OnWebhookEvent('order.failed')
  failed(): never {
    throw thrown;
  }

  @OnWebhookEvent('order.forbidden')
  forbidden(): void {
    throw new ForbiddenException('by the handler itself');
  }
}

@Controller('own')
class Own {
  @UseGuards(Refusing)
  @WebhookRoute('guarded/:tenant')
  guarded(): void {}

  @UseGuards(WebhookGuard, Refusing)
  @Post('plain/:tenant')
  plain(): void {}
}

@Injectable()
class Anything {
  @OnWebhookEvent('order.*')
  on(): void {}
}

const KEY = { kid: 'k1', alg: 'HS256', key: SECRET } as const;
const signer = createTokenSigner({ issuer: ISSUER, key: KEY });
const forger = createTokenSigner({ issuer: ISSUER, key: { ...KEY, key: `not-${SECRET}` } });
const event = { event: 'order.created', id: 'evt-1' } as const;

describe('the log of a receiver', () => {
  let started: StartedApp;

  beforeEach(async () => {
    started = await startApp(createExpress(), {
      options: receiverOptions({ issuers: [{ issuer: ISSUER, keys: [KEY] }] }),
      providers: [Orders],
      controllers: [Own],
    });
    started.logger.lines.length = 0;
  });
  afterEach(() => started.app.close());

  it('logs an unauthenticated refusal at debug, and calls its claims unverified', async () => {
    const { origin, logger } = started;
    const token = forger.sign(event) as string;

    const answer = await head(origin, token);

    expect(answer.headers['webhook-error']).toBe('bad_signature');
    expect(logger.lines).toEqual([
      'debug: Refused with 401 bad_signature: the token is invalid (receiver "default" at /webhooks; unverified: event "order.created", id "evt-1", issuer "https://shop.example", kid "k1"). To see why, capture the request and run "npx nestjs-webhook-token explain" WebhookReceiver',
    ]);
  });

  it('suggests the nearest pattern for an event without a handler', async () => {
    const { origin, logger } = started;

    await head(origin, signer.sign({ event: 'order.shiped' }) as string);
    await head(origin, signer.sign({ event: 'user.deleted' }) as string);

    const lines = logger.at('warn');
    expect(lines[0]).toContain(
      `No handler for order.shiped on receiver "default": it was acknowledged and dropped. The nearest pattern is 'order.shipped': is it misspelt?`,
    );
    expect(lines[1]).toContain(
      `Add @OnWebhookEvent('user.deleted') (is the module of its handler imported?), or set unhandledEvent: 'reject'`,
    );
  });

  it('logs a request without a token at debug', async () => {
    const { origin, logger } = started;

    await send(origin, { path: '/webhooks?secret=in-the-query', method: 'POST' });

    expect(logger.lines.join('\n')).toContain(
      'debug: Refused with 401 missing_token: the request has no Bearer token (receiver "default" at /webhooks)',
    );
    expect(logger.lines.join('\n')).not.toContain('in-the-query');
  });

  it('logs it at debug on Nest 11, which reports no level as enabled if none is set', async () => {
    const { origin, logger } = started;
    const isLevelEnabled = jest.spyOn(Logger, 'isLevelEnabled').mockReturnValue(false);

    await send(origin, { path: '/webhooks', method: 'POST' });
    isLevelEnabled.mockRestore();

    expect(logger.at('debug')).toHaveLength(1);
  });

  it('logs no request without a valid signature if debug is off', async () => {
    const { origin, logger } = started;
    const isLevelEnabled = jest
      .spyOn(Logger, 'isLevelEnabled')
      .mockImplementation((level) => level === 'error' || level === 'fatal');

    await send(origin, { path: '/webhooks', method: 'POST' });
    isLevelEnabled.mockRestore();

    expect(logger.lines).toEqual([]);
  });

  it('warns of an expired token with the clock difference in seconds', async () => {
    const { origin, logger } = started;
    const before = Date.now() - 3_000_000;
    const late = createTokenSigner({ issuer: ISSUER, key: KEY, now: () => before });

    const answer = await head(origin, late.sign(event) as string);

    expect(answer.headers['webhook-error']).toBe('token_expired');
    expect(logger.at('warn')).toHaveLength(1);
    expect(logger.at('warn')[0]).toMatch(
      /Refused with 401 token_expired: .* \(receiver "default" at \/webhooks, event "order\.created", id "evt-1", issuer "https:\/\/shop\.example", kid "k1", issued 300\d s ago, expired 270\d s ago, clock tolerance 60 s\)\. To see why, .* explain"/,
    );
  });

  it('warns of one refused event once, however often it is sent', async () => {
    const { origin, logger } = started;
    const token = signer.sign({ ...event, audience: 'someone-else' }) as string;

    for (let copy = 0; copy < 3; copy++) await head(origin, token);

    expect(logger.at('warn')).toHaveLength(1);
    expect(logger.at('debug')).toHaveLength(2);
  });

  it('logs the failed constraints with the code of the answer, without a value', async () => {
    const { origin, logger } = started;
    const data = { total: 'a-private-total', email: 'a-private-address' };

    const answer = await head(origin, signer.sign({ ...event, data }) as string);

    expect([answer.status, answer.headers['webhook-error']]).toEqual([422, 'invalid_payload']);
    const [line] = logger.at('warn');
    expect(line).toContain('Refused with 422 invalid_payload');
    expect(line).toContain('kid "k1"');
    expect(line).toContain('failed: total isInt, email isEmail');
    expect(logger.lines.join('\n')).not.toMatch(/a-private|validation_failed|handler_failed/);
  });

  it('logs the path and code of a Standard Schema issue', async () => {
    const { origin, logger } = started;
    const token = signer.sign({ ...event, event: 'order.shipped', data: { parcels: 'many' } });

    await head(origin, token as string);

    expect(logger.at('warn')[0]).toContain('failed: parcels invalid_type');
    expect(logger.lines.join('\n')).not.toContain('many');
  });

  it('logs a guard on a handler as a refusal of the application', async () => {
    const { origin, logger } = started;

    const answer = await head(origin, signed({ event: 'order.closed' }));

    expect([answer.status, answer.headers['webhook-error']]).toEqual([403, undefined]);
    expect(logger.at('warn')[0]).toContain(
      'Refused with 403 by the application: ForbiddenException (receiver "default" at /webhooks, event "order.closed"',
    );
    expect(logger.at('error')).toEqual([]);
    expect(logger.lines.join('\n')).not.toContain('handler_failed');
  });

  it('still logs an HttpException of the handler itself as its failure', async () => {
    const { origin, logger } = started;

    const answer = await head(origin, signed({ event: 'order.forbidden' }));

    expect([answer.status, answer.headers['webhook-error']]).toEqual([403, 'handler_failed']);
    expect(logger.at('error')[0]).toContain('by the handler itself');
  });

  it.each<[string, unknown, RegExp]>([
    [
      'the causes of an error',
      new Error('Failed query', {
        cause: new AggregateError([new Error('duplicate key')], 'no replica', { cause: 'x' }),
      }),
      /Error: Failed query\n.*Caused by: AggregateError: no replica\n.*Error: duplicate key\n.*Caused by: x/s,
    ],
    ['a thrown string', 'stock service says no', /Thrown: stock service says no WebhookReceiver$/s],
    [
      'a thrown object with name and message',
      { name: 'RpcError', message: 'from a client', token: 'not logged' },
      /Thrown: RpcError: from a client WebhookReceiver$/,
    ],
    ['a thrown object without a message', { status: 'error' }, /Thrown: object WebhookReceiver$/],
    ['nothing', undefined, /Thrown: undefined WebhookReceiver$/],
    ['a long string', 'x'.repeat(5_000), /Thrown: x{1024}… WebhookReceiver$/],
  ])('logs %s', async (_, value, expected) => {
    const { origin, logger } = started;
    thrown = value;

    expect((await head(origin, signed({ event: 'order.failed' }))).status).toBe(500);
    expect(logger.at('error').join('\n')).toMatch(expected);
    expect(logger.at('error').join('\n')).not.toContain('not logged');
  });

  it('logs an error that is its own cause once', async () => {
    const { origin, logger } = started;
    const error = new Error('loop');
    error.cause = error;
    thrown = error;

    await head(origin, signed({ event: 'order.failed' }));

    expect(
      logger
        .at('error')
        .join('\n')
        .match(/Error: loop/g),
    ).toHaveLength(1);
  });

  it('logs a guard behind the webhook guard at warn, with the pattern of the route', async () => {
    const { origin, logger } = started;

    const answer = await post(origin, signedBody('{}'), { path: '/own/guarded/acme' });

    expect(answer.status).toBe(429);
    const lines = logger.lines.join('\n');
    expect(lines).toContain('Refused with 429 by the application: Throttled');
    expect(lines).toContain('at /own/guarded/:tenant');
    expect(lines).not.toMatch(/handler_failed|acme/);
  });

  it('logs the refusal of a route that has only the webhook guard as its own', async () => {
    const { origin, logger } = started;

    const answer = await post(origin, signedBody('{}'), { path: '/own/plain/acme' });

    expect(answer.status).toBe(429);
    expect(logger.at('warn')[0]).toContain(
      'Refused with 429 by the application (receiver "default" at /own/plain/:tenant, event "order.created"',
    );
    expect(logger.lines.join('\n')).not.toContain('handler_failed');
  });

  it('never logs a token', async () => {
    const { origin, logger } = started;
    const tokens = [forger.sign(event), signer.sign({ ...event, audience: 'x' })] as string[];

    for (const token of tokens) await head(origin, token);

    expect(logger.lines).toHaveLength(2);
    for (const part of tokens.flatMap((token) => token.split('.'))) {
      expect(logger.lines.join('\n')).not.toContain(part);
    }
  });
});

describe('the log of several receivers', () => {
  let stores: Record<'a' | 'b', ScriptedReplayStore>;
  let started: StartedApp;

  const start = async ({ isQueued }: { isQueued: boolean }): Promise<void> => {
    stores = { a: new ScriptedReplayStore(), b: new ScriptedReplayStore() };
    const receiver = (name: 'a' | 'b'): WebhookReceiverOptions => ({
      name,
      path: name,
      issuers: [{ issuer: ISSUER, keys: [KEY] }],
      replay: { store: stores[name] },
      ...(isQueued && { acknowledge: 'queued', queue: new InProcessQueue() }),
    });
    started = await startApp(createExpress(), {
      options: { receiver: [receiver('a'), receiver('b')] },
      providers: [Anything],
    });
    started.logger.lines.length = 0;
  };
  afterEach(() => started.app.close());

  const sendTo = async (
    name: 'a' | 'b',
    input: Partial<WebhookTokenInput> = {},
  ): Promise<Answer> => {
    const token = signer.sign({ ...event, ...input }) as string;
    return head(started.origin, token, { path: `/${name}` });
  };

  it('reports the outage of each replay store, and its end', async () => {
    await start({ isQueued: false });
    const { logger } = started;
    stores.a.failure = stores.b.failure = new Error('the connection was lost');

    for (const name of ['a', 'b', 'b', 'a'] as const) await sendTo(name);
    stores.b.failure = undefined;
    await sendTo('b');
    await sendTo('a');
    const during = [...logger.lines];
    stores.a.failure = undefined;
    await sendTo('a');

    expect(logger.at('error')).toEqual([
      expect.stringContaining('Receiver "a" rejects webhooks with 503'),
      expect.stringContaining('Receiver "b" rejects webhooks with 503'),
    ]);
    expect(during.filter((line) => line.startsWith('log: '))).toEqual([
      expect.stringContaining('Receiver "b" accepts webhooks again'),
    ]);
    expect(logger.lines).toContainEqual(
      expect.stringContaining('Receiver "a" accepts webhooks again'),
    );
  });

  it('reports for each queue that its replay store is unavailable', async () => {
    await start({ isQueued: true });
    for (const name of ['a', 'b'] as const) {
      const gate = (stores[name].gate = new Gate());
      const answer = sendTo(name);
      await gate.reached;
      // The event is reserved when it arrives; the reservation for its run fails.
      stores[name].gate = undefined;
      gate.open();
      stores[name].failure = new Error('the connection was lost');
      expect((await answer).status).toBe(202);
    }
    const { logger } = started;
    while (logger.at('error').length < 2) await new Promise((turn) => setImmediate(turn));

    expect(logger.at('error')).toEqual([
      expect.stringContaining('Queued events of receiver "a" are deferred'),
      expect.stringContaining('Queued events of receiver "b" are deferred'),
    ]);
  });

  it('warns at each of an event without a handler, once', async () => {
    await start({ isQueued: false });
    const input = { event: 'refund.made', id: undefined };

    for (const name of ['a', 'b', 'a', 'b'] as const) await sendTo(name, input);

    expect(started.logger.at('warn')).toEqual([
      expect.stringContaining('No handler for refund.made on receiver "a"'),
      expect.stringContaining('No handler for refund.made on receiver "b"'),
    ]);
  });

  it('warns of at most 100 events without a handler for each', async () => {
    await start({ isQueued: false });
    const { logger } = started;

    for (let n = 0; n < 103; n++) await sendTo('a', { event: `refund.made-${n}`, id: undefined });
    await sendTo('b', { event: 'refund.made-0', id: undefined });

    expect(logger.at('warn')).toHaveLength(102);
    expect(logger.at('warn').slice(-2)).toEqual([
      expect.stringContaining('Many different events of receiver "a" have no handler'),
      expect.stringContaining('No handler for refund.made-0 on receiver "b"'),
    ]);
  });

  it('warns at each of one refused event', async () => {
    await start({ isQueued: false });
    for (const name of ['a', 'b', 'a', 'b'] as const)
      await sendTo(name, { audience: 'someone-else' });

    expect(started.logger.at('warn')).toEqual([
      expect.stringContaining('receiver "a" at /a'),
      expect.stringContaining('receiver "b" at /b'),
    ]);
  });
});

describe('the log of a queued receiver', () => {
  it('logs a guard on a handler as a refusal of the application', async () => {
    const { app, origin, logger } = await startApp(createExpress(), {
      options: receiverOptions({
        acknowledge: 'queued',
        queue: new InProcessQueue(),
        retry: { attempts: 1, schedule: ['0s'] },
      }),
      providers: [Orders],
    });

    const isDead = new Promise<void>((resolve) => {
      const { warn } = logger;
      logger.warn = (...args) => {
        warn(...args);
        if (String(args[0]).includes('dead letter')) resolve();
      };
    });

    await head(origin, signed({ event: 'order.closed' }));
    await isDead;
    await app.close();

    expect(logger.lines.join('\n')).toMatch(
      /warn: order\.closed \(id .*\) was refused in run 1 of 1 by the application: ForbiddenException/,
    );
    expect(logger.at('error')).toEqual([]);
  });
});

describe('a logger that throws', () => {
  it('does not change the answer', async () => {
    const { app, origin, logger } = await startApp(createExpress());
    logger.debug = () => {
      throw new Error('the disk of the log is full');
    };

    const answer = await head(origin, 'no.valid.token');
    await app.close();

    expect(answer.headers['webhook-error']).toBe('invalid_token');
  });
});
