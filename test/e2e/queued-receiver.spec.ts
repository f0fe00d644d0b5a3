import { AsyncLocalStorage } from 'node:async_hooks';
import { afterAll, afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Controller, Injectable, type Type } from '@nestjs/common';
import { IsInt } from 'class-validator';
import { createTokenSigner, digest } from 'nestjs-webhook-token/token';
import { TestClock } from 'nestjs-webhook-token/testing';
import type {
  DeliveryHandler,
  DeliveryRecord,
  DeliveryRun,
  EnqueuedDelivery,
} from 'nestjs-webhook-token/ports';
import {
  InProcessQueue,
  MemoryInboxStore,
  OnWebhookEvent,
  WebhookContext,
  WebhookRoute,
  WebhookInbox,
  type WebhookReceiverOptions,
  type WebhookEvent,
} from 'nestjs-webhook-token';
import { adapters, createFastify } from '../fixtures/adapters.js';
import { Gate } from '../fixtures/gate.js';
import { head, post, send } from '../fixtures/http-client.js';
import {
  ISSUER,
  receiverOptions,
  SECRET,
  signed,
  signedBody,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';
import { ScriptedReplayStore } from '../fixtures/scripted-replay.store.js';
import { describeWith } from '../fixtures/services.js';
import { PostgresQueue } from 'nestjs-webhook-token/postgres';
import { TestDatabase } from '../postgres/database.js';

class Amount {
  @IsInt() amount!: number;
}

/** Records the events of the handlers, and sets their behaviour. */
@Injectable()
class Work {
  readonly seen: WebhookEvent[] = [];
  do: (event: WebhookEvent) => unknown = () => {};

  async take(event: WebhookEvent): Promise<void> {
    this.seen.push(event);
    await this.do(event);
  }
}

@Injectable()
class Handlers {
  constructor(private readonly work: Work) {}

  @OnWebhookEvent('order.created')
  on(@WebhookContext() event: WebhookEvent): Promise<void> {
    return this.work.take(event);
  }

  @OnWebhookEvent('order.amount')
  onAmount(_amount: Amount): void {
    return;
  }
}

@Controller()
class Routes {
  constructor(private readonly work: Work) {}

  @WebhookRoute('endpoint')
  receive(@WebhookContext() event: WebhookEvent): Promise<void> {
    return this.work.take(event);
  }
}

/** A queue that can fail or not answer. */
class ScriptedQueue extends InProcessQueue {
  failure: Error | undefined;
  gate: Gate | undefined;
  damage = ({ delivery }: EnqueuedDelivery): EnqueuedDelivery['delivery'] => delivery;
  /** Runs of each event whose processes died. */
  died = 0;
  readonly runs: DeliveryRun[] = [];

  override consume(handler: DeliveryHandler): void {
    super.consume(async (delivery, attempt) => {
      const run = await handler(delivery, attempt + this.died);
      this.runs.push(run);
      return run;
    });
  }

  override async enqueue(
    deliveries: readonly EnqueuedDelivery[],
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    if (this.failure !== undefined) throw this.failure;
    await this.gate?.pass();
    return super.enqueue(deliveries.map((item) => ({ ...item, delivery: this.damage(item) })));
  }
}

function fail(): never {
  throw new Error('It cannot be read.');
}

const DEFAULT_WAITS = [5, 30, 120, 600, 1_800, 7_200, 18_000, 36_000, 86_400];

describe('a receiver that acknowledges before it handles', () => {
  let clock: TestClock;
  let queue: ScriptedQueue;
  let receiver: StartedApp;
  let work: Work;
  let inbox: WebhookInbox;

  async function start(change: Partial<WebhookReceiverOptions> = {}): Promise<void> {
    clock = new TestClock(Date.now());
    queue = new ScriptedQueue({ clock });
    receiver = await startApp(createFastify(), {
      options: {
        ...receiverOptions({ acknowledge: 'queued', queue, ...change }),
        clock,
      },
      providers: [Work, Handlers],
      controllers: [Routes] as Type[],
    });
    work = receiver.app.get(Work);
    inbox = receiver.app.get(WebhookInbox);
  }
  beforeEach(() => start({ retry: { jitter: 0 } }));
  afterEach(() => receiver.app.close());

  it('answers 202 before the handler has finished', async () => {
    const gate = new Gate();
    work.do = () => gate.pass();
    const answer = await head(receiver.origin, signed());
    await gate.reached;
    const copy = await head(receiver.origin, signed());
    gate.open();

    expect([answer.status, copy.status]).toEqual([202, 202]);
    expect(answer.headers['cache-control']).toBe('no-store');
  });

  it('acknowledges a duplicate, and handles the event once', async () => {
    const token = signed();
    const answers = [await head(receiver.origin, token), await head(receiver.origin, token)];
    await clock.advance(0);

    expect(answers.map(({ status }) => status)).toEqual([202, 204]);
    expect(answers[1]!.headers['webhook-duplicate']).toBe('true');
    expect(work.seen).toHaveLength(1);
  });

  it('passes the same event to the handler as without a queue', async () => {
    const id = crypto.randomUUID();
    const input = { id, subject: 'order-7', data: { text: 'naïve \u0000 \ud83d\ude80', n: 1.5 } };
    await head(receiver.origin, signed(input));
    await send(receiver.origin, { path: '/endpoint', method: 'HEAD', token: signed(input) });
    await clock.advance(0);
    await send(receiver.origin, { path: '/endpoint', token: signed({ ...input, id: 'another' }) });
    const [queued, direct] = work.seen as [WebhookEvent, WebhookEvent];

    expect(work.seen).toHaveLength(2);
    expect(queued).toMatchObject({
      id,
      data: input.data,
      event: 'order.created',
      issuer: ISSUER,
      subject: 'order-7',
      receiver: 'default',
      profile: direct.profile,
      method: 'HEAD',
      contentType: 'application/json',
      bodyVerified: true,
      attempt: undefined,
      run: 1,
    });
    expect(queued.claims.webhook).toEqual(direct.claims.webhook);
    expect(queued.expiresAt.getTime() - queued.issuedAt.getTime()).toBe(300_000);
    expect(await queued.rawBody()).toEqual(Buffer.alloc(0));
  });

  it.each<[string, (item: EnqueuedDelivery) => EnqueuedDelivery['delivery']]>([
    ['this version', ({ delivery }) => delivery],
    [
      'an older version, in its claims',
      ({ delivery }) => {
        const received = structuredClone(delivery.received!);
        const data: unknown = JSON.parse(Buffer.from(delivery.payload.bytes!).toString());
        Object.assign(received.claims.webhook, { data });
        const payload = { ...delivery.payload, kind: 'bytes', bytes: undefined } as const;
        return { ...delivery, received, payload };
      },
    ],
  ])('restores the inline data of an event that was stored by %s', async (_name, stored) => {
    queue.damage = stored;
    const json = '{"z":-1.5e-7,"a":[9007199254740991,"\\u0000\\ud800",null],"10":{},"2":true}';
    const data = JSON.parse(json) as object;
    const order = { key: 'sku-1', sequence: 1 };
    const token = signed({ data, order });
    await head(receiver.origin, token);
    await clock.advance(0);
    const [event] = work.seen;
    const claims = Buffer.from(token.split('.')[1]!, 'base64url').toString();

    expect(JSON.stringify(event!.data)).toBe(JSON.stringify(data));
    expect(event!.claims.webhook['data']).toBe(event!.data);
    expect(JSON.stringify(event!.claims)).toBe(JSON.stringify(JSON.parse(claims)));
    expect(await event!.rawBody()).toEqual(Buffer.alloc(0));
    expect(event!.contentType).toBe('application/json');
  });

  it('counts inline data in the bytes of a queue in memory', async () => {
    const text = 'x'.repeat(3_000);
    await receiver.app.close();
    await start({ queue: new InProcessQueue({ maxBytes: 2_048 }) });
    const answer = await head(receiver.origin, signed({ data: { text } }));

    expect(answer.status).toBe(503);
    expect(work.seen).toEqual([]);
  });

  it.each<[string, string, Buffer, unknown]>([
    ['JSON', 'application/json', Buffer.from('{"a":[1,"\\u0000"]}'), { a: [1, '\u0000'] }],
    ['octets', 'image/png', Buffer.from([0x89, 0, 255, 0xc3, 0x28]), undefined],
    ['10 megabytes', 'application/octet-stream', Buffer.alloc(10_000_000, '\u00e9'), undefined],
  ])('keeps a body of %s unchanged', async (_name, type, body, data) => {
    const token = signed({ hash: digest('sha256', body) });
    const answer = await post(
      receiver.origin,
      { token, body },
      { headers: { 'content-type': type } },
    );
    await clock.advance(0);
    const [event] = work.seen;

    expect(answer.status).toBe(202);
    expect((await event!.rawBody()).equals(body)).toBe(true);
    expect(event!.contentType).toBe(type);
    // Jest would print ten differing megabytes.
    const { data: seen } = event!;
    expect(Buffer.isBuffer(seen) ? seen.equals(body) : seen).toEqual(data ?? true);
  });

  it('retries a failed handler on schedule', async () => {
    work.do = ({ run }) => {
      if (run < 3) throw new Error('not yet');
    };
    await head(receiver.origin, signed());
    await clock.advance(0);
    const runs = [work.seen.length];
    for (const seconds of [4, 1, 29, 1, 86_400]) {
      await clock.advance(seconds * 1_000);
      runs.push(work.seen.length);
    }

    expect(runs).toEqual([1, 1, 2, 2, 3, 3]);
    expect(work.seen.map(({ run }) => run)).toEqual([1, 2, 3]);
    expect(receiver.logger.at('error').join('\n')).toContain(
      'failed in run 1 of 10: handler_failed',
    );
    expect((await inbox.deadLetters()).deadLetters).toEqual([]);
  });

  it('passes the event as it was received to every run, also to one of a retried dead letter', async () => {
    await receiver.app.close();
    await start({ retry: { attempts: 2, jitter: 0 } });
    const totals: number[] = [];
    work.do = ({ data }) => {
      const order = data as { total: number };
      totals.push(order.total);
      order.total *= 100;
      throw new Error('The database is down.');
    };
    await head(receiver.origin, signed({ data: { total: 3 } }));
    for (const seconds of [0, 5]) await clock.advance(seconds * 1_000);
    const { deadLetters } = await inbox.deadLetters();
    await inbox.retry(deadLetters.map(({ id }) => id));
    await clock.advance(0);

    expect(totals).toEqual([3, 3, 3]);
  });

  it('handles the events of an ordering key in order, also if one fails', async () => {
    work.do = ({ sequence, run }) => {
      if (sequence === 1 && run === 1) throw new Error('It failed.');
    };
    const order = (key: string, sequence: number) => ({ order: { key, sequence } });
    for (const sequence of [1, 2]) await head(receiver.origin, signed(order('sku-1', sequence)));
    await head(receiver.origin, signed(order('sku-2', 3)));
    await queue.flush();
    expect(work.seen.map(({ sequence }) => sequence)).toEqual([1, 3]);

    await clock.advance(6_000);
    await queue.flush();
    expect(work.seen.map(({ sequence }) => sequence)).toEqual([1, 3, 1, 2]);
    expect(work.seen.at(-1)).toMatchObject({ orderingKey: 'sku-1', run: 1 });
  });

  it('takes an AggregateError of a handler for one failure', async () => {
    work.do = () => Promise.any([Promise.reject(new Error('a')), Promise.reject(new Error('b'))]);
    await head(receiver.origin, signed());
    await clock.advance(0);
    const [listed] = await queue.list({}, { limit: 1 });

    expect(receiver.logger.at('error')).toEqual([
      expect.stringMatching(/failed in run 1 [^]*All promises were rejected[^]*: a[^]*: b/),
    ]);
    expect((await queue.attempts(listed!.delivery.id))[0]!.answer).toBe(
      'AggregateError: All promises were rejected\nError: a\nError: b',
    );
  });

  it.each<[string, () => unknown]>([
    ['whose message is a symbol', () => Object.assign(new Error(), { message: Symbol('x') })],
    ['whose stack throws', () => Object.defineProperty(new Error(), 'stack', { get: fail })],
    ['whose members throw', () => new Proxy(new Error(), { get: fail })],
    ['whose prototype throws', () => new Proxy(new Error(), { getPrototypeOf: fail })],
  ])('takes an error %s for a failure of the handler', async (_, make) => {
    await receiver.app.close();
    await start({ retry: { attempts: 2, jitter: 0 } });
    work.do = () => Promise.reject(make());
    await head(receiver.origin, signed());
    await clock.advance(0);
    await clock.advance(DEFAULT_WAITS[0]! * 1_000);
    const { deadLetters } = await inbox.deadLetters();

    expect(work.seen).toHaveLength(2);
    expect(deadLetters).toMatchObject([{ runs: 2, failureReason: 'handler_failed' }]);
    expect(receiver.logger.at('error').join('\n')).toMatch(/failed in run 1 of 2/);
  });

  it('counts a run of an event that its queue has damaged', async () => {
    await receiver.app.close();
    await start({ retry: { attempts: 1, jitter: 0 } });
    queue.damage = ({ delivery }) => {
      const { payload } = delivery;
      return { ...delivery, payload: { ...payload, bytes: Buffer.from('{"cut') } };
    };
    await post(receiver.origin, signedBody('{"a":1}'));
    await clock.advance(0);
    const { deadLetters } = await inbox.deadLetters();

    expect(work.seen).toEqual([]);
    expect(deadLetters).toMatchObject([{ runs: 1, failureReason: 'handler_failed' }]);
    expect(receiver.logger.at('error').join('\n')).toMatch(/cannot be restored from its queue/);
  });

  it('lists an event as a dead letter whose last run has killed its process', async () => {
    await receiver.app.close();
    await start({ retry: { attempts: 2, jitter: 0 } });
    queue.died = 2;
    await head(receiver.origin, signed());
    await clock.advance(0);
    const { deadLetters } = await inbox.deadLetters();
    const attempts = await queue.attempts(deadLetters[0]!.id);
    const entry = (await inbox.list()).entries[0];

    expect(work.seen).toEqual([]);
    expect(deadLetters).toMatchObject([{ runs: 2, failureReason: 'process_died' }]);
    expect(attempts).toMatchObject([{ attempt: 2, reason: 'process_died' }]);
    expect(entry).toMatchObject({ outcome: 'dead', runs: 2 });
    expect(receiver.logger.at('warn').join('\n')).toMatch(
      /dead letter.*process died in run 2 of 2.*WebhookInbox/,
    );
    queue.died = 0;
    await inbox.retry([deadLetters[0]!.id]);
    await clock.advance(0);
    expect(work.seen).toMatchObject([{ run: 1 }]);
  });

  it('runs the last run of an event that survived the one before', async () => {
    await receiver.app.close();
    await start({ retry: { attempts: 2, jitter: 0 } });
    queue.died = 1;
    await head(receiver.origin, signed());
    await clock.advance(0);

    expect(work.seen).toMatchObject([{ run: 2 }]);
    expect((await inbox.deadLetters()).deadLetters).toEqual([]);
  });

  it('keeps the beginning of what a handler threw, without tokens', async () => {
    const word = 'x'.repeat(1_000_000);
    const token = signed({ data: { a: 1 } });
    work.do = () => {
      throw new Error(`with ${token} for ${word}`);
    };
    await head(receiver.origin, signed({ data: { a: 1 } }));
    await clock.advance(0);
    const [failed] = await queue.list({}, { limit: 1 });
    const [attempt] = await queue.attempts(failed!.delivery.id);

    expect(attempt!.answer).toBe(`Error: with [token] for ${word}`.slice(0, 1_024));
  });

  it('lists an event as a dead letter after the last run, and retries it on request', async () => {
    work.do = () => {
      throw new Error('never');
    };
    const id = crypto.randomUUID();
    await head(receiver.origin, signed({ id, data: { a: 1 } }));
    await clock.advance(0);
    for (const seconds of DEFAULT_WAITS) await clock.advance(seconds * 1_000);
    const { deadLetters } = await inbox.deadLetters({ receiver: 'default' });

    expect(work.seen).toHaveLength(10);
    expect(deadLetters).toEqual([
      {
        id: expect.any(String),
        receiver: 'default',
        event: 'order.created',
        eventId: id,
        runs: 10,
        failureReason: 'handler_failed',
        receivedAt: expect.any(Date),
        diedAt: new Date(clock.now()),
      },
    ]);
    const attempts = await queue.attempts(deadLetters[0]!.id);
    expect(attempts.map(({ attempt }) => attempt)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    expect(attempts[0]).toMatchObject({
      reason: 'handler_failed',
      durationMs: 0,
      answer: 'Error: never',
    });
    expect(receiver.logger.at('warn').join('\n')).toMatch(
      /failed in all 10 run.*dead letter.*WebhookInbox/,
    );
    work.do = () => {};
    const ids = deadLetters.map(({ id: dead }) => dead);
    expect(await inbox.retry([...ids, 'unknown'])).toEqual(ids);
    await clock.advance(0);
    expect(work.seen.at(-1)).toMatchObject({ id, run: 1, data: { a: 1 } });
    expect((await inbox.deadLetters()).deadLetters).toEqual([]);
  });

  it('handles a retried dead letter outside of the transaction that retried it', async () => {
    await receiver.app.close();
    await start({ retry: { attempts: 1 } });
    const transaction = new AsyncLocalStorage<string>();
    const seen: (string | undefined)[] = [];
    work.do = () => {
      seen.push(transaction.getStore());
      if (seen.length === 1) throw new Error('not yet');
    };
    await head(receiver.origin, signed());
    await clock.advance(0);
    const [dead] = (await inbox.deadLetters()).deadLetters;
    await transaction.run('open', async () => inbox.retry([dead!.id]));
    await clock.advance(0);

    expect(seen).toEqual([undefined, undefined]);
  });

  it('runs a dead letter again if its sender repeats it after the replay window', async () => {
    await receiver.app.close();
    await start({ retry: { attempts: 1, jitter: 0 }, replay: { window: '1h' } });
    const signer = createTokenSigner({ issuer: ISSUER, key: SECRET, now: () => clock.now() });
    const token = (): string => signer.sign({ event: 'order.created', txn: 'order-9' }) as string;
    work.do = () => Promise.reject(new Error('never'));
    await head(receiver.origin, token());
    await clock.advance(0);
    expect((await inbox.deadLetters()).deadLetters).toHaveLength(1);
    await clock.advance(2 * 3_600_000);
    work.do = () => {};

    expect((await head(receiver.origin, token())).status).toBe(202);
    await clock.advance(0);
    expect(work.seen).toHaveLength(2);
    expect((await inbox.deadLetters()).deadLetters).toEqual([]);
  });

  it('treats invalid data as a failure of the handler', async () => {
    const token = signed({ event: 'order.amount', data: { amount: 'many' } });
    const answer = await head(receiver.origin, token);
    await clock.advance(0);

    expect(answer.status).toBe(202);
    expect(receiver.logger.at('error').join('\n')).toContain('order.amount');
  });

  it('rejects an invalid token or body before it acknowledges', async () => {
    const forged = await head(receiver.origin, `${signed()}x`);
    const broken = await post(receiver.origin, signedBody('{"a":'));
    await clock.advance(0);

    expect([forged.status, broken.status]).toEqual([401, 400]);
    expect(work.seen).toEqual([]);
  });

  it('handles events of @WebhookRoute before the answer', async () => {
    work.do = () => {
      throw new Error('seen by the sender');
    };
    const answer = await send(receiver.origin, { path: '/endpoint', token: signed() });

    expect(answer.status).toBe(500);
    expect(work.seen).toHaveLength(1);
  });

  it('answers 503 while its queue fails, and accepts the event when it is sent again', async () => {
    const token = signed();
    queue.failure = new Error('connect ECONNREFUSED');
    const refused = await head(receiver.origin, token);
    queue.failure = undefined;
    const accepted = await head(receiver.origin, token);
    await clock.advance(0);

    expect([refused.status, accepted.status]).toEqual([503, 202]);
    expect(refused.headers).toMatchObject({
      'webhook-error': 'store_unavailable',
      'retry-after': '5',
    });
    expect(work.seen).toHaveLength(1);
    expect(receiver.logger.at('error').join('\n')).toContain(
      'the queue of received events cannot be reached',
    );
  });

  it('answers 503 if its queue times out, and handles an event that was recorded late once', async () => {
    const token = signed();
    const gate = new Gate();
    queue.gate = gate;
    const answer = head(receiver.origin, token);
    await gate.reached;
    await clock.advance(10_000);
    expect((await answer).status).toBe(503);
    queue.gate = undefined;
    gate.open();
    await clock.advance(0);
    const again = await head(receiver.origin, token);
    await clock.advance(0);

    expect(again.status).toBe(202);
    expect(work.seen).toHaveLength(1);
  });

  it('warns that events queued in memory are lost in a crash', () => {
    expect(receiver.logger.at('warn').join('\n')).toContain(
      'a crash loses events that were acknowledged but not handled',
    );
  });

  it('lets running handlers finish at shutdown', async () => {
    const gate = new Gate();
    work.do = () => gate.pass();
    await head(receiver.origin, signed());
    await gate.reached;
    const closed = receiver.app.close();
    gate.open();
    await closed;

    expect(work.seen[0]!.signal.aborted).toBe(false);
    expect(receiver.logger.lines.join('\n')).not.toContain('left unfinished');
  });

  /** Closes the application while a handler waits at the gate, which opens once the handler was aborted. */
  async function closeDuring(gate: Gate): Promise<void> {
    await head(receiver.origin, signed());
    await gate.reached;
    const closed = receiver.app.close();
    const aborted = new Promise((resolve) =>
      work.seen[0]!.signal.addEventListener('abort', resolve),
    );
    await clock.advance(10_000);
    await aborted;
    gate.open();
    await closed;
  }

  it('aborts a handler that does not finish in time', async () => {
    const gate = new Gate();
    work.do = () => gate.pass();
    await closeDuring(gate);

    expect(receiver.logger.lines.join('\n')).toContain(
      '1 event(s) of receiver "default" were unfinished at shutdown',
    );
  });

  it('does not count a run that the shutdown has interrupted', async () => {
    const gate = new Gate();
    work.do = async ({ signal }) => {
      await gate.pass();
      throw signal.reason;
    };
    await closeDuring(gate);
    while (queue.runs.length === 0) await new Promise((turn) => setImmediate(turn));

    expect(queue.runs).toEqual([
      { outcome: { type: 'defer', at: clock.now() }, attempt: undefined },
    ]);
  });

  describe('with an event without a handler', () => {
    it('drops it with a warning', async () => {
      const answer = await head(receiver.origin, signed({ event: 'refund.made' }));

      expect(answer.status).toBe(204);
      expect(queue.size).toBe(0);
      expect(receiver.logger.at('warn').join('\n')).toContain('No handler for refund.made');
    });

    it("rejects it with unhandledEvent: 'reject'", async () => {
      await receiver.app.close();
      await start({ unhandledEvent: 'reject' });
      const answer = await head(receiver.origin, signed({ event: 'refund.made' }));

      expect(answer.status).toBe(422);
      expect(queue.size).toBe(0);
    });

    it('moves an event that was queued by a process with a handler to the dead letters', async () => {
      const [delivery] = [await queuedDelivery('refund.made')];
      await queue.enqueue([{ delivery, notBefore: clock.now() }]);
      await clock.advance(0);
      for (const seconds of DEFAULT_WAITS) await clock.advance(seconds * 1_000);

      expect((await inbox.deadLetters()).deadLetters).toMatchObject([
        { failureReason: 'event_unhandled', runs: 10 },
      ]);
    });
  });

  it('lists dead letters page by page, newest first', async () => {
    await receiver.app.close();
    await start({ retry: { attempts: 1, jitter: 0 } });
    work.do = () => Promise.reject(new Error('never'));
    const ids = ['first', 'second', 'third'];
    for (const id of ids) {
      await head(receiver.origin, signed({ id }));
      await clock.advance(1);
    }
    const page = await inbox.deadLetters({ limit: 2, event: 'order.created' });
    const rest = await inbox.deadLetters({ after: page.next, limit: 2 });

    const listed = [page, rest].map(({ deadLetters }) => deadLetters.map((one) => one.eventId));
    expect(listed).toEqual([['third', 'second'], ['first']]);
    expect(rest.next).toBeUndefined();
    expect((await inbox.deadLetters({ event: 'order.paid' })).deadLetters).toEqual([]);
    await expect(inbox.deadLetters({ limit: 501 })).rejects.toThrow(/limit/);
  });

  it('leaves events of another receiver in the queue and logs them', async () => {
    const foreign = { ...(await queuedDelivery('order.created')), id: 'foreign' };
    const received = { ...foreign.received!, receiver: 'billing' };
    await queue.enqueue([{ delivery: { ...foreign, received }, notBefore: clock.now() }]);
    await clock.advance(3_600_000);

    expect(work.seen).toEqual([]);
    expect(queue.size).toBe(1);
    expect(receiver.logger.at('error').join('\n')).toContain('of receiver "billing"');
  });

  /** Returns an event as the receiver enqueues it, whether it has a handler or not. */
  async function queuedDelivery(event: string): Promise<EnqueuedDelivery['delivery']> {
    const recorded: EnqueuedDelivery[] = [];
    const enqueue = queue.enqueue.bind(queue);
    queue.enqueue = async (deliveries) => {
      recorded.push(...deliveries);
      return [];
    };
    await head(receiver.origin, signed());
    queue.enqueue = enqueue;
    const { delivery } = recorded[0]!;
    const claims = { ...delivery.received!.claims, webhook: { event } };
    return { ...delivery, event, received: { ...delivery.received!, claims } };
  }
});

describe('a queued event', () => {
  const clock = new TestClock(Date.now());
  const store = new ScriptedReplayStore();
  const queue = new InProcessQueue({ clock });
  let receiver: StartedApp;
  let work: Work;
  beforeEach(async () => {
    if (receiver !== undefined) return;
    receiver = await startApp(createFastify(), {
      options: {
        ...receiverOptions({ acknowledge: 'queued', queue, replay: { store } }),
        clock,
      },
      providers: [Work, Handlers],
    });
    work = receiver.app.get(Work);
  });
  afterAll(() => receiver.app.close());

  it('is not handled again after its handler committed it, even if the queue repeats it', async () => {
    work.do = async (event) => {
      await event.commit('a transaction');
      // To the queue, this looks like a crash.
      throw new Error('after the commit');
    };
    const before = work.seen.length;
    await head(receiver.origin, signed());
    await clock.advance(60_000);

    expect(work.seen.length - before).toBe(1);
    expect((await receiver.app.get(WebhookInbox).deadLetters()).deadLetters).toEqual([]);
  });

  it('is deferred without counting a run if its lease is lost', async () => {
    let tries = 0;
    work.do = async (event) => event.commit(tries++ === 0 ? undefined : 'a transaction');
    const before = work.seen.length;
    await head(receiver.origin, signed());
    await clock.advance(60_000);

    expect(work.seen.slice(before).map(({ run }) => run)).toEqual([1, 1]);
  });

  it('is deferred without counting a run while the replay store is unavailable', async () => {
    work.do = () => {};
    const before = work.seen.length;
    const gate = new Gate();
    store.gate = gate;
    const answer = head(receiver.origin, signed());
    await gate.reached;
    // The receiver has acknowledged the event; the reservation for the run then fails.
    store.gate = undefined;
    gate.open();
    store.failure = new Error('connect ECONNREFUSED');
    expect((await answer).status).toBe(202);
    await clock.advance(60_000);
    const during = work.seen.length - before;
    store.failure = undefined;
    await clock.advance(10_000);

    expect(during).toBe(0);
    expect(work.seen.slice(before).map(({ run }) => run)).toEqual([1]);
    expect(
      receiver.logger.at('error').filter((line) => line.includes('are deferred')),
    ).toHaveLength(1);
  });

  it('is deferred without counting a run if the replay store does not answer within 9 s', async () => {
    work.do = () => {};
    const before = work.seen.length;
    const [accepting, running] = [new Gate(), new Gate()];
    store.gate = accepting;
    const answer = head(receiver.origin, signed());
    await accepting.reached;
    store.gate = running;
    accepting.open();
    expect((await answer).status).toBe(202);
    await clock.advance(0);
    await running.reached;
    store.gate = undefined;
    await clock.advance(9_000);
    await clock.advance(5_000);

    expect(work.seen.slice(before).map(({ run }) => run)).toEqual([1]);
    expect(receiver.logger.at('error').at(-1)).toContain('the replay store did not answer');
  });

  it('is no dead letter if its handler commits it in the last run and then fails', async () => {
    // Must be the last test, since it advances the clock by days.
    work.do = async (event) => {
      if (event.run === 10) await event.commit('a transaction');
      throw new Error('as ever');
    };
    const before = work.seen.length;
    await head(receiver.origin, signed());
    for (const wait of [0, ...DEFAULT_WAITS]) await clock.advance(wait * 2_000);
    await clock.advance(10_000);

    expect(work.seen.slice(before).at(-1)?.run).toBe(10);
    expect((await receiver.app.get(WebhookInbox).deadLetters()).deadLetters).toEqual([]);
  });
});

describe('two applications that share a queue and an inbox', () => {
  /** A queue whose deliveries another application runs. */
  class RunElsewhere extends InProcessQueue {
    constructor(private readonly elsewhere: InProcessQueue) {
      super();
    }

    override consume(): void {}

    override async enqueue(deliveries: readonly EnqueuedDelivery[]) {
      return this.elsewhere.enqueue(deliveries);
    }
  }

  it('record that an event is handled, although its entry is written after its outcome', async () => {
    const clock = new TestClock(Date.now());
    const store = new MemoryInboxStore();
    const handling = new InProcessQueue({ clock });
    const [receives, handles] = await Promise.all(
      [new RunElsewhere(handling), handling].map(async (queue) =>
        startApp(createFastify(), {
          options: {
            ...receiverOptions({ acknowledge: 'queued', queue }),
            clock,
            inbox: { store },
          },
          providers: [Work, Handlers],
        }),
      ),
    );
    await head(receives!.origin, signed());
    await clock.advance(0);

    const outcomes = async ({ app }: StartedApp): Promise<string[]> => {
      const { entries } = await app.get(WebhookInbox).list();
      return entries.map(({ outcome, runs }) => `${outcome} ${runs}`);
    };
    expect(await outcomes(handles!)).toEqual([]);
    expect(await outcomes(receives!)).toEqual(['queued undefined']);
    await clock.advance(1_000);
    expect(await outcomes(handles!)).toEqual(['handled 1']);
    await Promise.all([receives!.app.close(), handles!.app.close()]);
  });
});

describe('a receiver that acknowledges before it handles', () => {
  const issuers = [{ issuer: ISSUER, secret: SECRET }];
  const queue = new InProcessQueue();
  const queued = { path: 'webhooks', issuers, acknowledge: 'queued', queue } as const;
  const publisher = { issuer: ISSUER, secret: SECRET, queue };

  it.each<[string, object, string, RegExp]>([
    [
      'no queue',
      { receiver: { ...queued, queue: undefined } },
      'receiver.queue',
      /is required with acknowledge/,
    ],
    ['no path', { receiver: { ...queued, path: undefined } }, 'receiver.path', /is required/],
    [
      'a queue that is not used',
      { receiver: { ...queued, acknowledge: 'handled' } },
      'receiver.queue',
      /only applies with acknowledge: 'queued'/,
    ],
    [
      'an object that is not a queue',
      { receiver: { ...queued, queue: {} } },
      'receiver.queue',
      /WebhookQueue/,
    ],
    [
      'an unknown value of acknowledge',
      { receiver: { ...queued, acknowledge: 'later' } },
      'receiver.acknowledge',
      /'handled' or 'queued'/,
    ],
    [
      'a misspelled retry option',
      { receiver: { ...queued, retry: { attemps: 3 } } },
      'receiver.retry.attemps',
      /did you mean "attempts"/,
    ],
    [
      'zero attempts',
      { receiver: { ...queued, retry: { attempts: 0 } } },
      'receiver.retry.attempts',
      /from 1 to 1000/,
    ],
    [
      "the publisher's queue",
      { receiver: queued, publisher },
      'receiver "default".queue',
      /is also the queue of the publisher/,
    ],
    [
      "another receiver's queue",
      {
        receiver: [
          { ...queued, name: 'a' },
          { ...queued, name: 'b', path: 'other' },
        ],
      },
      'receiver "b".queue',
      /is also the queue of receiver "a"/,
    ],
  ])('fails start-up with %s', async (_, options, path, message) => {
    await expect(startApp(createFastify(), { options })).rejects.toMatchObject({
      code: 'invalid_configuration',
      problems: [{ path, message: expect.stringMatching(message) }],
    });
  });
});

describe.each(adapters)('the queue of a receiver on %s', (_, create) => {
  it.each([
    ['HEAD', 'inline data', () => signed({ data: { name: 'Ada' } })],
    ['POST', 'a body', () => signedBody('{"name":"Ada"}')],
  ] as const)(
    'drops the data of a handled %s with %s by keepPayloads',
    async (method, _what, sign) => {
      const clock = new TestClock(Date.now());
      const queue = new InProcessQueue({ clock, keepPayloads: '1m' });
      const { app, origin } = await startApp(create(), {
        options: { ...receiverOptions({ acknowledge: 'queued', queue }), clock },
        providers: [Work, Handlers],
      });
      const message = sign();
      const answer =
        typeof message === 'string' ? await head(origin, message) : await post(origin, message);
      await queue.flush();
      await clock.advance(120_000);
      const { seen } = app.get(Work);
      const [listed] = await queue.list({ status: 'delivered' }, { limit: 10 });
      const [stored] = await queue.find([listed!.delivery.id]);

      expect(answer.status).toBe(202);
      expect(seen).toMatchObject([{ method, data: { name: 'Ada' } }]);
      expect(stored!.payloadDropped).toBe(true);
      expect(JSON.stringify(stored)).not.toContain('Ada');
      await app.close();
    },
  );
});

(await describeWith('PostgreSQL'))('a durable queue of received events', () => {
  const database = new TestDatabase();
  afterAll(async () => database.close());

  it('runs an event at once again, and under the same number, after a shutdown has aborted it', async () => {
    const clock = new TestClock(Date.now() + 30_000);
    const options = { pool: database.pool, schema: database.newSchema(), clock, notify: false };
    const queue = new PostgresQueue(options);
    const { app, origin } = await startApp(createFastify(), {
      options: { ...receiverOptions({ acknowledge: 'queued', queue }), clock },
      providers: [Work, Handlers],
    });
    const gate = new Gate();
    const work = app.get(Work);
    work.do = async ({ signal }) => {
      signal.addEventListener('abort', () => gate.open());
      await gate.pass();
      throw signal.reason;
    };
    await head(origin, signed());
    await gate.reached;
    const closed = app.close();
    await clock.advance(9_500);
    await closed;
    const next = new PostgresQueue(options);
    const run = await new Promise<number>((resolve) => {
      void next.consume(async (_, number) => {
        resolve(number);
        return { outcome: { type: 'delivered' } };
      });
    });
    await next.stop(clock.now() + 5_000);

    expect(run).toBe(1);
  });
});
