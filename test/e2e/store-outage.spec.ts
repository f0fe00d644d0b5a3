import { afterEach, describe, expect, it } from '@jest/globals';
import { Controller, Injectable, Post, UseGuards } from '@nestjs/common';
import { createTokenSigner } from 'nestjs-webhook-token/token';
import { TestClock } from 'nestjs-webhook-token/testing';
import type { ReplayClaim, ReplayReservation, ReplayVerdict } from 'nestjs-webhook-token/ports';
import {
  InProcessQueue,
  OnWebhookEvent,
  WebhookRoute,
  WebhookGuard,
  MemoryReplayStore,
} from 'nestjs-webhook-token';
import { createExpress } from '../fixtures/adapters.js';
import { Gate } from '../fixtures/gate.js';
import { head, send, type Answer } from '../fixtures/http-client.js';
import {
  ISSUER,
  SECRET,
  receiverOptions,
  signed,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';
import { ScriptedReplayStore } from '../fixtures/scripted-replay.store.js';

/** A store that becomes unavailable when a handler runs, until the clock reaches a given time. */
class OutageStore extends MemoryReplayStore {
  awayUntil = 0;
  /** Duration of the outage in milliseconds, from the next handler run. */
  outage = 0;
  /** How often a reservation is made and the next call fails: the connection breaks between the two. */
  breaksAfterReserve = 0;
  /** Whether it is read-only once a reservation is made again. */
  becomesReadOnly = false;
  isReadOnly = false;
  /** Calls that never get an answer. */
  unanswered: readonly string[] = [];
  readonly asked: string[] = [];
  private isBroken = false;

  constructor(readonly time: TestClock) {
    super({ clock: time });
  }

  begin(): void {
    if (this.outage > 0) this.awayUntil = this.time.now() + this.outage;
  }

  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    await this.answering('reserve');
    const verdict = await super.reserve(claim);
    if (this.awayUntil > 0) this.isReadOnly = this.becomesReadOnly;
    if (this.awayUntil > 0 && this.breaksAfterReserve > 0) {
      this.breaksAfterReserve--;
      this.isBroken = true;
    }
    return verdict;
  }

  override async extend(reservation: ReplayReservation): Promise<boolean> {
    this.requireUp();
    return super.extend(reservation);
  }

  override async commit(reservation: ReplayReservation): Promise<boolean> {
    this.requireUp();
    if (this.isReadOnly) throw new Error('the store is read-only');
    await this.answering('commit, before it has recorded');
    const isRecorded = await super.commit(reservation);
    await this.answering('commit');
    return isRecorded;
  }

  override async release(reservation: ReplayReservation): Promise<boolean> {
    this.requireUp();
    await this.answering('release');
    return super.release(reservation);
  }

  private async answering(call: string): Promise<void> {
    this.asked.push(call);
    if (this.unanswered.includes(call)) await new Promise(() => undefined);
  }

  private requireUp(): void {
    const isAway = this.time.now() < this.awayUntil || this.isBroken;
    this.isBroken = false;
    if (isAway) throw new Error('the connection was lost');
  }
}

const store = { current: new OutageStore(new TestClock()) };
let handled = 0;
let handlerFails = false;

@Injectable()
class Orders {
  @OnWebhookEvent('order.created')
  onCreated(): void {
    handled++;
    store.current.begin();
    if (handlerFails) throw new Error('the handler failed');
  }
}

@Controller()
class Routes {
  @WebhookRoute('route')
  receive(): void {
    handled++;
    store.current.begin();
  }

  @UseGuards(WebhookGuard)
  @Post('guarded')
  receiveGuarded(): void {
    handled++;
    store.current.begin();
  }
}

let started: StartedApp;
afterEach(async () => started.app.close());

interface Outage {
  readonly time: TestClock;
  /** Sends the same event, and advances the clock until it is answered. */
  readonly deliver: (path: string) => Promise<Answer>;
  /** Sends the same event, waits for a call of the store, and advances the clock. */
  readonly deliverUnanswered: (call: string, ms: number, path?: string) => Promise<Answer>;
}

async function startWithOutage(
  ms: number,
  change: Parameters<typeof receiverOptions>[0] = {},
): Promise<Outage> {
  handled = 0;
  handlerFails = false;
  const time = new TestClock(Date.now());
  store.current = new OutageStore(time);
  store.current.outage = ms;
  started = await startApp(createExpress(), {
    options: {
      ...receiverOptions({ replay: { store: store.current, lease: '5s' }, ...change }),
      clock: time,
    },
    providers: [Orders],
    controllers: [Routes],
  });
  const signer = createTokenSigner({ issuer: ISSUER, key: SECRET, now: () => time.now() });
  const sign = (): string => signer.sign({ event: 'order.created', txn: 'order-1' }) as string;
  const deliver = async (path: string): Promise<Answer> => {
    const token = sign();
    let isAnswered = false;
    const sending = send(started.origin, { path, token }).finally(() => (isAnswered = true));
    const isWaiting = (): boolean => !isAnswered;
    while (isWaiting()) {
      if (store.current.awayUntil > 0) await time.advance(100);
      else await new Promise((resolve) => setImmediate(resolve));
    }
    return sending;
  };
  const deliverUnanswered = async (
    call: string,
    ms: number,
    path = '/webhooks',
  ): Promise<Answer> => {
    const sending = send(started.origin, { path, token: sign() });
    while (!store.current.asked.includes(call)) {
      await new Promise((resolve) => setImmediate(resolve));
    }
    await time.advance(ms);
    return sending;
  };
  return { time, deliver, deliverUnanswered };
}

describe('a replay store that is unavailable when a handler finishes', () => {
  it.each(['/webhooks', '/route'])(
    'records the event when it is available again (%s)',
    async (path) => {
      const { deliver } = await startWithOutage(3_000);
      expect((await deliver(path)).status).toBe(204);

      const copy = await deliver(path);
      expect([copy.status, copy.headers['webhook-duplicate'], handled]).toEqual([204, 'true', 1]);
    },
  );

  it('records the event even if the outage outlasts its lease', async () => {
    const { deliver } = await startWithOutage(8_000);
    expect((await deliver('/webhooks')).status).toBe(204);

    expect((await deliver('/webhooks')).headers['webhook-duplicate']).toBe('true');
    expect(handled).toBe(1);
  });

  it('records the event if the connection breaks again after the event was reserved again', async () => {
    const { deliver } = await startWithOutage(6_000);
    store.current.breaksAfterReserve = 1;
    expect((await deliver('/webhooks')).status).toBe(204);

    expect((await deliver('/webhooks')).headers['webhook-duplicate']).toBe('true');
    expect(handled).toBe(1);
  });

  it('frees an event that it has reserved again but does not record', async () => {
    const { deliver } = await startWithOutage(6_000);
    store.current.becomesReadOnly = true;
    expect((await deliver('/webhooks')).status).toBe(503);

    Object.assign(store.current, { outage: 0, awayUntil: 0, isReadOnly: false });
    expect((await deliver('/webhooks')).status).toBe(204);
    expect(handled).toBe(2);
  });

  it.each(['/webhooks', '/route'])(
    'answers 503 if it stays unavailable, and the event can be repeated (%s)',
    async (path) => {
      const { deliver } = await startWithOutage(60_000);
      const answer = await deliver(path);
      expect(answer.status).toBe(503);
      expect(answer.headers['webhook-error']).toBe('store_unavailable');
      expect(answer.headers['retry-after']).toBe('5');
      expect(started.logger.at('warn').join('\n')).toContain(
        'order.created (id order-1) was handled, but the replay store did not record it: its sender gets 503 and repeats it, and its handlers may run a second time',
      );

      store.current.outage = 0;
      store.current.awayUntil = 0;
      expect((await deliver(path)).status).toBe(204);
      expect(handled).toBe(2);
    },
  );
});

describe('a replay store that stays unavailable', () => {
  it('is logged for a guarded route, whose answer has already been sent', async () => {
    const { deliver, time } = await startWithOutage(60_000);
    expect((await deliver('/guarded')).status).toBe(201);

    while (!started.logger.at('warn').join('\n').includes('its sender got a success')) {
      await time.advance(1_000);
    }
    expect(handled).toBe(1);
  });

  it('makes a queued receiver answer 503, and the repeated event is queued once', async () => {
    const queue = new InProcessQueue();
    const { deliver } = await startWithOutage(0, { acknowledge: 'queued', queue });
    const enqueue = queue.enqueue.bind(queue);
    queue.enqueue = async (deliveries) => {
      const receipts = await enqueue(deliveries);
      store.current.awayUntil = store.current.time.now() + 60_000;
      return receipts;
    };
    expect((await deliver('/webhooks')).status).toBe(503);
    expect(started.logger.at('warn').join('\n')).toContain('the queue keeps one copy');

    queue.enqueue = enqueue;
    store.current.awayUntil = 0;
    expect((await deliver('/webhooks')).status).toBe(202);
  });
});

/** A store whose next commit ends in another way than usual. */
class CommitStore extends MemoryReplayStore {
  next: 'taken over' | 'answer lost' | undefined;

  override async commit(reservation: ReplayReservation): Promise<boolean> {
    const { next } = this;
    this.next = undefined;
    if (next === 'taken over') {
      // As if its lease had expired, and another process had handled and recorded the event.
      await super.release(reservation);
      const verdict = await super.reserve(reservation.claim);
      if (verdict.status === 'reserved') await super.commit(verdict.reservation);
    }
    const isRecorded = await super.commit(reservation);
    if (next === 'answer lost') throw new Error('the connection was lost');
    return isRecorded;
  }
}

describe('an event that is recorded when its handler finishes', () => {
  it.each([
    ['warns if another process has taken it over and handled it', 'taken over', 1],
    ['does not warn if only the answer to its own record was lost', 'answer lost', 0],
  ] as const)('%s', async (_, next, warnings) => {
    const commits = new CommitStore();
    commits.next = next;
    started = await startApp(createExpress(), {
      options: receiverOptions({ replay: { store: commits } }),
      providers: [Orders],
    });

    expect((await send(started.origin, { token: signed(), method: 'HEAD' })).status).toBe(204);
    const taken = started.logger.at('warn').filter((line) => line.includes('took it over'));
    expect(taken).toHaveLength(warnings);
  });
});

describe('a replay store that never answers', () => {
  it('makes the receiver answer 503 after 9 s', async () => {
    const { deliver, deliverUnanswered } = await startWithOutage(0);
    store.current.unanswered = ['reserve'];
    const answer = await deliverUnanswered('reserve', 9_000);
    expect([answer.status, answer.headers['webhook-error']]).toEqual([503, 'store_unavailable']);
    expect(handled).toBe(0);

    store.current.unanswered = [];
    expect((await deliver('/webhooks')).status).toBe(204);
    expect(handled).toBe(1);
  });

  it.each(['/webhooks', '/route'])(
    'makes the receiver answer 503 after 9 s if it has recorded the event, which is then a duplicate (%s)',
    async (path) => {
      const { deliver, deliverUnanswered } = await startWithOutage(0);
      store.current.unanswered = ['commit'];
      expect((await deliverUnanswered('commit', 9_000, path)).status).toBe(503);

      // Only the answer was lost.
      store.current.unanswered = [];
      expect((await deliver(path)).headers['webhook-duplicate']).toBe('true');
      expect(handled).toBe(1);
    },
  );

  it('frees an event that it reserved too late', async () => {
    const time = new TestClock(Date.now());
    const replayStore = new ScriptedReplayStore();
    const gate = (replayStore.gate = new Gate());
    const options = receiverOptions({ replay: { store: replayStore } });
    const { app, origin } = await startApp(createExpress(), {
      options: { ...options, clock: time },
      providers: [Orders],
    });
    const token = signed();
    const late = head(origin, token);
    await gate.reached;
    await time.advance(9_000);
    expect((await late).status).toBe(503);
    gate.open();
    const repeated = await head(origin, token);
    await app.close();

    expect(repeated.status).toBe(204);
  });

  it('holds the answer to a failed handler back for 2 s at most', async () => {
    const { deliverUnanswered } = await startWithOutage(0);
    handlerFails = true;
    store.current.unanswered = ['release'];

    expect((await deliverUnanswered('release', 2_000)).status).toBe(500);
  });

  it('delays an answer by 11 s at most if it can neither record nor free the event', async () => {
    const { time, deliver, deliverUnanswered } = await startWithOutage(0);
    store.current.unanswered = ['commit, before it has recorded', 'release'];
    const answer = await deliverUnanswered('commit, before it has recorded', 11_000);
    expect(answer.status).toBe(503);

    store.current.unanswered = [];
    await time.advance(30_000);
    expect((await deliver('/webhooks')).status).toBe(204);
    expect(handled).toBe(2);
  });
});
