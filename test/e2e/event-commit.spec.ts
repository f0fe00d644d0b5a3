import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Controller, HttpCode, Injectable, Post, UseGuards, type Type } from '@nestjs/common';
import { TestClock } from 'nestjs-webhook-token/testing';
import type { ReplayReservation } from 'nestjs-webhook-token/ports';
import {
  OnWebhookEvent,
  WebhookContext,
  WebhookRoute,
  type WebhookEvent,
  WebhookGuard,
  WebhookVerifier,
  MemoryReplayStore,
} from 'nestjs-webhook-token';
import { createFastify } from '../fixtures/adapters.js';
import { Gate } from '../fixtures/gate.js';
import { send } from '../fixtures/http-client.js';
import { receiverOptions, signed, startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { ScriptedReplayStore } from '../fixtures/scripted-replay.store.js';

/** Records its calls. */
class WatchedStore extends ScriptedReplayStore {
  readonly asked: string[] = [];

  override commit(reservation: ReplayReservation) {
    this.asked.push('commit');
    return super.commit(reservation);
  }

  override extend(reservation: ReplayReservation) {
    this.asked.push('extend');
    return super.extend(reservation);
  }

  override release(reservation: ReplayReservation) {
    this.asked.push('release');
    return super.release(reservation);
  }

  override async commitWith(tx: unknown, reservation: ReplayReservation): Promise<boolean> {
    this.asked.push('commitWith');
    if (tx instanceof Error) throw tx;
    if (tx instanceof Gate) await tx.pass();
    if (tx === UNDONE) return true;
    // Not this.commit, whose calls by the receiver are recorded.
    return super.commitWith(tx, reservation);
  }
}

/** The handlers' behaviour, set by each test. */
@Injectable()
class Work {
  do: (event: WebhookEvent) => Promise<void> = async () => {};
}

@Injectable()
class Handlers {
  constructor(private readonly work: Work) {}

  @OnWebhookEvent(['order.created', 'order.shared'])
  on(@WebhookContext() event: WebhookEvent): Promise<void> {
    return this.work.do(event);
  }

  @OnWebhookEvent('order.shared')
  onShared(): void {
    return;
  }
}

@Controller()
class Routes {
  constructor(private readonly work: Work) {}

  @WebhookRoute('endpoint')
  receive(@WebhookContext() event: WebhookEvent): Promise<void> {
    return this.work.do(event);
  }

  @Post('guarded')
  @HttpCode(204)
  @UseGuards(WebhookGuard)
  guarded(@WebhookContext() event: WebhookEvent): Promise<void> {
    return this.work.do(event);
  }
}

const TX = 'a transaction';
const UNDONE = 'a transaction whose savepoint is rolled back';
/** Routes that settle an event before the answer; behind the guard alone, the answer settles it. */
const settling = ['/webhooks', '/endpoint'];

describe('event.commit', () => {
  const clock = new TestClock(Date.now());
  const store = new WatchedStore();
  let receiver: StartedApp;
  let work: Work;
  beforeAll(async () => {
    receiver = await startApp(createFastify(), {
      options: { ...receiverOptions({ replay: { store } }), clock },
      providers: [Work, Handlers],
      controllers: [Routes] as Type[],
    });
    work = receiver.app.get(Work);
  });
  beforeEach(() => void store.asked.splice(0));
  afterAll(() => receiver.app.close());

  it.each([...settling, '/guarded'])('records the event for a handler of %s', async (path) => {
    work.do = (event) => event.commit(TX);
    const copy = { path, token: signed() };
    const first = await send(receiver.origin, copy);
    const second = await send(receiver.origin, copy);

    expect([first.status, second.status]).toEqual([204, 204]);
    expect(second.headers['webhook-duplicate']).toBe('true');
  });

  it.each([...settling, '/guarded'])(
    'records the event of a handler of %s that succeeds although its savepoint was rolled back',
    async (path) => {
      work.do = (event) => event.commit(UNDONE);
      const copy = { path, token: signed() };
      const first = await send(receiver.origin, copy);
      const second = await send(receiver.origin, copy);

      expect([first.status, second.status]).toEqual([204, 204]);
      expect(second.headers['webhook-duplicate']).toBe('true');
      expect(store.asked).toEqual(['commitWith', 'commit']);
    },
  );

  it.each(settling)('is enough if the store of %s fails afterwards', async (path) => {
    work.do = async (event) => {
      await event.commit(TX);
      store.commitFailure = new Error('the store is away');
    };
    const copy = { path, token: signed() };
    const first = await send(receiver.origin, copy);
    store.commitFailure = undefined;
    const second = await send(receiver.origin, copy);

    expect([first.status, second.status]).toEqual([204, 204]);
    expect(second.headers['webhook-duplicate']).toBe('true');
  });

  it.each(settling)('keeps the commit if the handler of %s fails afterwards', async (path) => {
    work.do = async (event) => {
      await event.commit(TX);
      throw new Error('after the commit');
    };
    const copy = { path, token: signed() };
    const first = await send(receiver.origin, copy);
    const second = await send(receiver.origin, copy);

    expect([first.status, second.status]).toEqual([500, 204]);
    expect(second.headers['webhook-duplicate']).toBe('true');
    expect(store.asked).toEqual(['commitWith', 'release']);
  });

  it.each(settling)('makes the sender of %s retry if the lease is lost', async (path) => {
    let answer: unknown;
    work.do = async (event) => event.commit(undefined).catch((error) => void (answer = error));
    const swallowed = await send(receiver.origin, { path, token: signed() });

    expect(answer).toMatchObject({ name: 'WebhookReplayError', code: 'lease_lost' });
    expect(swallowed.status).toBe(409);
    expect(swallowed.headers['webhook-error']).toBe('lease_lost');
    expect(swallowed.headers['retry-after']).toBe('1');
    expect(receiver.logger.at('warn').join('\n')).toContain(
      'its lease ended while the handler ran',
    );
  });

  it.each(settling)('passes the error of a transaction to the handler of %s', async (path) => {
    const failure = new Error('could not serialize access');
    let caught: unknown;
    work.do = async (event) => {
      await event.commit(failure).catch((error) => void (caught = error));
      // Repeats the whole transaction, as after a serialization failure.
      await event.commit(TX);
    };
    const answer = await send(receiver.origin, { path, token: signed() });

    expect(caught).toBe(failure);
    expect(answer.status).toBe(204);
    expect(store.asked).toEqual(['commitWith', 'commitWith', 'commit']);
  });

  it('stops lease extensions, which would wait for the transaction', async () => {
    const [before, after] = [new Gate(), new Gate()];
    work.do = async (event) => {
      await before.pass();
      await event.commit(TX);
      await after.pass();
    };
    const answer = send(receiver.origin, { token: signed() });
    await before.reached;
    await clock.advance(10_000);
    before.open();
    await after.reached;
    await clock.advance(60_000);
    after.open();

    expect((await answer).status).toBe(204);
    expect(store.asked).toEqual(['extend', 'commitWith', 'commit']);
  });

  it('extends the lease until the store has answered', async () => {
    const transaction = new Gate();
    work.do = (event) => event.commit(transaction);
    const answer = send(receiver.origin, { token: signed() });
    await transaction.reached;
    for (let ms = 0; ms < 60_000; ms += 5_000) await clock.advance(5_000);
    transaction.open();

    expect((await answer).status).toBe(204);
    expect(store.asked).toEqual(['commitWith', ...Array(8).fill('extend'), 'commit']);
  });

  it('extends the lease after a transaction that failed', async () => {
    const gate = new Gate();
    work.do = async (event) => {
      await event.commit(new Error('the connection was lost')).catch(() => {});
      await gate.pass();
    };
    const answer = send(receiver.origin, { token: signed() });
    await gate.reached;
    await clock.advance(10_000);
    gate.open();

    expect((await answer).status).toBe(204);
    expect(store.asked).toEqual(['commitWith', 'extend', 'commit']);
  });

  it('throws for an event with several handlers', async () => {
    let refusal: unknown;
    work.do = async (event) => event.commit(TX).catch((error) => void (refusal = error));
    const answer = await send(receiver.origin, { token: signed({ event: 'order.shared' }) });

    expect(refusal).toMatchObject({
      code: 'unsupported_option',
      message: expect.stringMatching(/^2 handlers handle this event/),
    });
    expect(answer.status).toBe(204);
    expect(store.asked).toEqual(['commit']);
  });

  it('works for an event from WebhookVerifier.verify', async () => {
    const verifier = receiver.app.get(WebhookVerifier);
    const headers = { authorization: `Bearer ${signed()}` };
    const verify = (handle: (event: WebhookEvent) => unknown) =>
      verifier.verify({ method: 'HEAD', headers }, { handle });
    await expect(verify((event) => event.commit(undefined))).rejects.toMatchObject({
      code: 'lease_lost',
    });
    const event = await verify((one) => one.commit(TX));

    await expect(verify(() => {})).rejects.toMatchObject({ code: 'replayed' });
    await expect(event.commit(TX)).rejects.toMatchObject({ code: 'lease_lost' });
  });
});

describe('event.commit with a store that does not support it', () => {
  it('throws an error that names a supporting store, and changes nothing', async () => {
    let refusal: unknown;
    const receiver = await startApp(createFastify(), {
      options: receiverOptions({ replay: { store: new MemoryReplayStore() } }),
      providers: [Work, Handlers],
    });
    receiver.app.get(Work).do = async (event) =>
      event.commit(TX).catch((error) => void (refusal = error));
    const answer = await send(receiver.origin, { token: signed() });
    await receiver.app.close();

    expect(refusal).toMatchObject({
      name: 'WebhookReplayError',
      code: 'unsupported_option',
      message: expect.stringMatching(/PostgresReplayStore/),
    });
    expect(answer.status).toBe(204);
  });
});
