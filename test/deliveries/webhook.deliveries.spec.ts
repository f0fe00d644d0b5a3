import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { type WebhookPublisherOptions, InProcessQueue } from 'nestjs-webhook-token';
import { TestClock } from 'nestjs-webhook-token/testing';
import { WebhookDeliveries } from '../../lib/deliveries/webhook.deliveries.js';
import { PublisherBench } from '../publisher/publisher-bench.js';
import { WireReceiver } from '../publisher/wire-receiver.js';

let receiver: WireReceiver;
let bench: PublisherBench;

beforeEach(async () => {
  receiver = await WireReceiver.start();
  bench = await start();
});

afterEach(async () => {
  await bench.stop();
  await receiver.stop();
});

async function start(
  options: Partial<WebhookPublisherOptions> = {},
  clock?: TestClock,
): Promise<PublisherBench> {
  await bench?.stop();
  const all: Partial<WebhookPublisherOptions> = {
    endpoints: [
      { id: 'crm', url: receiver.url, method: 'POST' },
      { id: 'erp', url: receiver.url, method: 'POST', events: ['order.paid'] },
      { id: 'crm-a', url: receiver.url, method: 'POST', tenant: 'a' },
      { id: 'crm-b', url: receiver.url, method: 'POST', tenant: 'b' },
    ],
    ...options,
  };
  bench = await PublisherBench.start(all, undefined, clock);
  return bench;
}

function deliveries(): WebhookDeliveries {
  return bench.module.get(WebhookDeliveries);
}

interface Publishing {
  readonly id?: string;
  readonly tenant?: string;
  readonly subject?: string;
  /** Bytes that are added to the data. */
  readonly size?: number;
}

/** Publishes to one endpoint, and waits for the run. */
async function publish(event: string, { size, ...options }: Publishing = {}): Promise<string> {
  const before = bench.reports.length;
  const data = size === undefined ? { n: 1 } : { n: 'x'.repeat(size) };
  const result = await bench.publisher.publish(event, data, options);
  await bench.reported(before + result.deliveries.length);
  return result.deliveries[0]!.id;
}

async function publishDead(event: string, options: Publishing = {}) {
  const { script } = receiver;
  receiver.script = () => ({ status: 500 });
  const id = await publish(event, options);
  receiver.script = script;
  return id;
}

describe('list and get', () => {
  it('show a delivery as pending before its first attempt', async () => {
    const { clock } = bench;
    const published = await bench.publisher.publish('order.created', {}, { id: 'e', delay: '1h' });
    const [id] = published.deliveries.map((delivery) => delivery.id);

    expect(await deliveries().list()).toEqual({
      deliveries: [
        {
          id,
          eventId: 'e',
          event: 'order.created',
          endpointId: 'crm',
          status: 'pending',
          attemptsMade: 0,
          round: 1,
          createdAt: new Date(clock.now()),
          updatedAt: new Date(clock.now()),
          nextAttemptAt: new Date(clock.now() + 3_600_000),
        },
      ],
    });
    expect(await deliveries().get(id!)).toMatchObject({ id, attempts: [] });
  });

  it('show failed attempts and the successful one', async () => {
    receiver.script = (_, index) =>
      index === 0
        ? { status: 503, headers: { 'Content-Type': 'text/plain' }, body: 'in a moment' }
        : { status: 204 };
    const first = bench.clock.now();
    const id = await publish('order.created', { id: 'e' });
    const failed = await deliveries().get(id);
    await bench.clock.advance(5_000);
    await bench.reported(2);

    expect(failed).toMatchObject({
      status: 'pending',
      attemptsMade: 1,
      failureReason: 'http_503',
      nextAttemptAt: new Date(first + 5_000),
    });
    const delivered = await deliveries().get(id);
    expect(delivered).toMatchObject({ status: 'delivered', attemptsMade: 2 });
    expect(delivered?.failureReason).toBeUndefined();
    expect(delivered?.nextAttemptAt).toBeUndefined();
    // `alg` and no `kid`: the bench signs with one secret.
    const tokens = receiver.requests.map(({ claims: { jti, txn, iat, exp, webhook } }) => ({
      jti,
      txn,
      event: webhook.event,
      issuedAt: new Date(iat * 1_000),
      expiresAt: new Date(exp * 1_000),
      alg: 'HS256',
    }));
    expect(delivered?.attempts).toEqual([
      {
        token: tokens[0],
        attempt: 1,
        at: new Date(first),
        method: 'POST',
        statusCode: 503,
        durationMs: 0,
        failureReason: 'http_503',
        answer: 'in a moment',
      },
      {
        token: tokens[1],
        attempt: 2,
        at: new Date(first + 5_000),
        method: 'POST',
        statusCode: 204,
        durationMs: 0,
      },
    ]);
  });

  it('show until when a delivery was deferred', async () => {
    receiver.script = () => ({ status: 503, headers: { 'Retry-After': '60' } });
    await publish('order.created', { id: 'first' });
    const before = bench.reports.length;
    await bench.publisher.publish('order.created', {}, { id: 'second' });
    await bench.reported(before + 1);
    const [second] = (await deliveries().list({ eventId: 'second' })).deliveries;

    expect(second).toMatchObject({
      status: 'pending',
      attemptsMade: 0,
      nextAttemptAt: new Date(bench.clock.now() + 60_000),
    });
  });

  it('show only the origin of a URL', async () => {
    await bench.publisher.send(`${receiver.url}?key=s3cr3t`, 'order.created', {});
    const { deliveries: found } = await deliveries().list();
    const details = await deliveries().get(found[0]!.id);

    expect(details?.origin).toBe(new URL(receiver.url).origin);
    expect(JSON.stringify([found, details])).not.toMatch(/s3cr3t|hooks/);
  });

  it('show no token and no payload', async () => {
    const id = await publish('order.created');
    const details = JSON.stringify(await deliveries().get(id));

    expect(receiver.requests[0]!.token).toMatch(/^ey/);
    expect(details).not.toContain(receiver.requests[0]!.token);
    expect(details).not.toContain('payload');
  });

  it('return pages, also across deliveries of the same time', async () => {
    const expected: string[] = [];
    for (let n = 0; n < 5; n++) expected.push(await publish('order.created'));
    const found: string[] = [];
    let after: string | undefined;
    do {
      const page = await deliveries().list({ event: 'order.created' }, { limit: 2, after });
      found.push(...page.deliveries.map(({ id }) => id));
      after = page.next;
    } while (after !== undefined);

    expect(found).toHaveLength(5);
    expect(found.toSorted()).toEqual(expected.toSorted());
  });

  it('return nothing for an unknown id', async () => {
    for (const id of ['nobody', '', 'x\0y']) {
      expect(await deliveries().get(id)).toBeUndefined();
      expect(await deliveries().payload(id)).toBeUndefined();
    }
  });
});

describe('payload', () => {
  it('returns the bytes of the event as a copy', async () => {
    const octets = Buffer.from([0, 1, 255]);
    const { id } = await bench.publisher.send('crm', 'file.sent', octets, {
      contentType: 'application/x-blob',
      id: 'e',
    });
    expect(id).toBe('e');
    const [delivery] = (await deliveries().list({ eventId: 'e' })).deliveries;
    const payload = await deliveries().payload(delivery!.id);
    payload!.bytes.fill(7);

    expect(await deliveries().payload(delivery!.id)).toEqual({
      contentType: 'application/x-blob',
      bytes: octets,
    });
  });
});

describe('redeliver', () => {
  beforeEach(async () => {
    await start({ retry: { attempts: 1 } });
  });

  it('attempts a dead delivery again under its id and txn', async () => {
    const id = await publishDead('order.created', { id: 'e' });
    await bench.clock.advance(1_000);
    const result = await deliveries().redeliver(id);
    const pending = await deliveries().get(id);
    await bench.reported(2);

    expect(result).toEqual({ deliveries: [{ id, redelivered: true }], more: false });
    expect(pending).toMatchObject({ status: 'pending', attemptsMade: 0 });
    expect(await deliveries().get(id)).toMatchObject({
      status: 'delivered',
      attempts: [{ statusCode: 500 }, { statusCode: 204 }],
    });
    expect(receiver.requests.map(({ claims }) => claims.txn)).toEqual(['e', 'e']);
    expect(receiver.requests[0]!.body).toEqual(receiver.requests[1]!.body);
  });

  it('sends a delivered delivery again as another one, any number of times', async () => {
    const id = await publish('order.created', { id: 'e' });
    const [second] = (await deliveries().redeliver(id)).deliveries;
    await bench.reported(2);
    const [third] = (await deliveries().redeliver(id)).deliveries;
    await bench.reported(3);

    expect(second).toEqual({ id, redelivered: true, as: expect.any(String) });
    expect(new Set([id, second!.as, third!.as]).size).toBe(3);
    expect(receiver.requests.map(({ claims }) => claims.txn)).toEqual(['e', 'e', 'e']);
    expect(await deliveries().get(id)).toMatchObject({ status: 'delivered', round: 1 });
    expect(await deliveries().get(third!.as!)).toMatchObject({ status: 'delivered', round: 3 });
  });

  it('does not change a redelivery that is being attempted', async () => {
    const id = await publish('order.created');
    receiver.script = () => 'hang';
    const first = await deliveries().redeliver(id);
    const second = await deliveries().redeliver(id);
    await receiver.received(2);
    receiver.answerHeld({ status: 204 });
    await bench.reported(2);

    expect(first.deliveries[0]?.redelivered).toBe(true);
    expect(second.deliveries).toEqual([{ id, redelivered: false, reason: 'pending' }]);
  });

  it('continues with older deliveries, although the newer ones die again', async () => {
    await start({ retry: { attempts: 1 } });
    receiver.script = () => ({ status: 500 });
    const ids: string[] = [];
    for (let n = 0; n < 3; n++) {
      ids.unshift(await publish('order.created'));
      await bench.clock.advance(1_000);
    }
    const sent: string[][] = [];
    let after: string | undefined;
    do {
      const part = await deliveries().redeliver({ status: 'dead' }, { limit: 2, after });
      sent.push(part.deliveries.map(({ id }) => id));
      await bench.reported(3 + sent.flat().length);
      after = part.next;
    } while (after !== undefined);

    expect(sent).toEqual([ids.slice(0, 2), ids.slice(2)]);
    await expect(deliveries().redeliver({ status: 'dead' }, { after: 'x' })).rejects.toMatchObject({
      code: 'invalid_option',
      message: expect.stringContaining('after'),
    });
  });

  it('attempts a delivery that waits by the clock of the queue, which is behind', async () => {
    const behind = new TestClock();
    const queue = new InProcessQueue({ clock: behind });
    await start({ queue, retry: { attempts: 3, schedule: ['0s', '1m'], jitter: 0 } });
    behind.set(bench.clock.now());
    const id = await publishDead('order.created');
    await bench.clock.advance(120_000);
    const result = await deliveries().redeliver(id);
    await receiver.received(2);

    expect(result.deliveries).toEqual([{ id, redelivered: true }]);
  });

  it('attempts a waiting delivery immediately', async () => {
    await start({ retry: { attempts: 3, schedule: ['0s', '1h'] } });
    const id = await publishDead('order.created');
    const dry = await deliveries().redeliver(id, { dryRun: true });
    const waiting = await deliveries().get(id);
    const result = await deliveries().redeliver(id);
    await bench.reported(2);

    expect(dry.deliveries).toEqual([{ id, redelivered: false }]);
    expect(waiting).toMatchObject({ status: 'pending', attemptsMade: 1 });
    expect(result.deliveries).toEqual([{ id, redelivered: true }]);
    expect(await deliveries().get(id)).toMatchObject({
      status: 'delivered',
      attempts: [{ attempt: 1 }, { attempt: 2 }],
    });
  });

  it('shows a delivery that was brought forward as due now', async () => {
    const result = await bench.publisher.publish('order.created', {}, { delay: '1h' });
    const { id } = result.deliveries[0]!;
    receiver.script = () => 'hang';
    await deliveries().redeliver(id);
    const due = new Date(bench.clock.now());
    await receiver.received(1);

    expect(await deliveries().get(id)).toMatchObject({ status: 'pending', nextAttemptAt: due });
    receiver.answerHeld({ status: 204 });
    await bench.reported(1);
  });

  it('does not change pending deliveries that only a filter matches', async () => {
    const id = await publish('order.created');
    receiver.script = () => 'hang';
    await deliveries().redeliver(id);
    await receiver.received(2);

    const filter = { status: 'delivered', eventId: (await deliveries().get(id))!.eventId } as const;
    expect((await deliveries().redeliver(filter)).deliveries).toEqual([
      { id, redelivered: false, reason: 'pending' },
    ]);
    receiver.answerHeld({ status: 204 });
    await bench.reported(2);
  });

  it('sends all dead deliveries that a filter matches, and no delivered ones', async () => {
    const dead = [await publishDead('order.created'), await publishDead('order.created')];
    await publish('order.created');
    await publishDead('invoice.created');
    const result = await deliveries().redeliver({ event: 'order.created' });
    await bench.reported(6);

    expect(result.more).toBe(false);
    expect(result.deliveries.every(({ redelivered }) => redelivered)).toBe(true);
    expect(result.deliveries.map(({ id }) => id).toSorted()).toEqual(dead.toSorted());
    expect(receiver.requests).toHaveLength(6);
  });

  it('sends delivered deliveries if the filter asks for them, each event once', async () => {
    const id = await publish('order.created');
    await bench.clock.advance(1_000);
    const [again] = (await deliveries().redeliver(id)).deliveries;
    await bench.reported(2);
    const result = await deliveries().redeliver({ status: 'delivered', endpointId: 'crm' });
    await bench.reported(3);

    const byId = new Map(result.deliveries.map((delivery) => [delivery.id, delivery]));
    expect(byId.get(id)).toEqual({ id, redelivered: false, reason: 'superseded' });
    expect(byId.get(again!.as!)).toMatchObject({ redelivered: true });
    expect(receiver.requests).toHaveLength(3);
  });

  it('stops at the limit, and reports that there are more', async () => {
    for (let n = 0; n < 3; n++) await publishDead('order.created');
    const first = await deliveries().redeliver({ since: new Date(0) }, { limit: 2 });
    await bench.reported(5);
    const second = await deliveries().redeliver({ since: new Date(0) }, { limit: 2 });
    await bench.reported(6);

    expect([first.deliveries.length, first.more]).toEqual([2, true]);
    expect([second.deliveries.length, second.more]).toEqual([1, false]);
  });

  it('changes nothing in a dry run, which returns the same deliveries', async () => {
    const dead = await publishDead('order.created');
    const asked = { endpointId: 'crm' };
    const before = await deliveries().get(dead);
    const dry = await deliveries().redeliver(asked, { dryRun: true });

    expect(dry).toEqual({ deliveries: [{ id: dead, redelivered: false }], more: false });
    expect(await deliveries().get(dead)).toEqual(before);
    expect(await bench.queue.list({ status: 'dead' }, { limit: 9 })).toHaveLength(1);
    const real = await deliveries().redeliver(asked);
    await bench.reported(2);
    expect(real.deliveries.map(({ id }) => id)).toEqual(dry.deliveries.map(({ id }) => id));
  });

  it('does not send a delivery again whose payload the queue has dropped', async () => {
    await start({ retry: { attempts: 1 }, queue: new InProcessQueue({ maxBytes: 2_000 }) });
    const dead = await publishDead('order.created', { size: 600 });
    const delivered = await publish('order.created', { size: 600 });
    const reason = 'payload_dropped';

    for (const id of [dead, delivered]) {
      expect((await deliveries().redeliver(id)).deliveries).toEqual([
        { id, redelivered: false, reason },
      ]);
      expect(await deliveries().payload(id)).toBeUndefined();
    }
    expect((await deliveries().redeliver({ since: new Date(0) })).deliveries).toEqual([
      { id: dead, redelivered: false, reason },
    ]);
    expect(receiver.requests).toHaveLength(2);
  });

  it('does not send a delivery again after keepPayloads, and still recognises its event', async () => {
    const clock = new TestClock();
    await start({ queue: new InProcessQueue({ clock, keepPayloads: '1h' }) }, clock);
    const id = await publish('order.created', { id: 'e' });
    const before = await deliveries().get(id);
    await clock.advance(3_600_000);
    await clock.advance(60_000);

    expect(before).not.toHaveProperty('payloadDropped', true);
    expect(await deliveries().get(id)).toEqual({ ...before, payloadDropped: true });
    expect(await deliveries().payload(id)).toBeUndefined();
    expect((await deliveries().redeliver(id)).deliveries).toEqual([
      { id, redelivered: false, reason: 'payload_dropped' },
    ]);
    const same = await bench.publisher.publish('order.created', { n: 1 }, { id: 'e' });
    expect(same.duplicate).toBe(true);
    await expect(
      bench.publisher.publish('order.created', { n: 2 }, { id: 'e' }),
    ).rejects.toMatchObject({ code: 'id_conflict' });
    expect(receiver.requests).toHaveLength(1);
  });

  it('drops payloads in time after the clock was ahead for one delivery', async () => {
    const clock = new TestClock();
    await start({ queue: new InProcessQueue({ clock, keepPayloads: '1h' }) }, clock);
    await publish('order.created', { id: 'before' });
    clock.set(clock.now() + 5 * 86_400_000);
    const ahead = await publish('order.created', { id: 'ahead' });
    clock.set(clock.now() - 5 * 86_400_000);
    const id = await publish('order.created', { id: 'e' });
    await clock.advance(2 * 3_600_000);

    expect(await deliveries().get(id)).toHaveProperty('payloadDropped', true);
    expect(await deliveries().get(ahead)).not.toHaveProperty('payloadDropped', true);
  });

  it('rejects an unknown id', async () => {
    await expect(deliveries().redeliver('nobody')).rejects.toMatchObject({
      code: 'unknown_delivery',
    });
  });
});

describe('tenants', () => {
  beforeEach(async () => {
    await start({ retry: { attempts: 1 } });
  });

  it('see only their own deliveries in every method', async () => {
    const ofA = await publishDead('order.created', { tenant: 'a' });
    const ofB = await publishDead('order.created', { tenant: 'b' });
    const ofNone = await publishDead('order.created');
    const a = { tenant: 'a' };

    expect((await deliveries().list({}, a)).deliveries.map(({ id }) => id)).toEqual([ofA]);
    expect(await deliveries().get(ofA, a)).toMatchObject({ id: ofA, tenant: 'a' });
    expect(await deliveries().payload(ofA, a)).toBeDefined();
    expect(await deliveries().stats({}, a)).toMatchObject({ dead: 1 });
    for (const id of [ofB, ofNone]) {
      expect(await deliveries().get(id, a)).toBeUndefined();
      expect(await deliveries().payload(id, a)).toBeUndefined();
      await expect(deliveries().redeliver(id, a)).rejects.toMatchObject({
        code: 'unknown_delivery',
      });
    }
    const dry = await deliveries().redeliver({ since: new Date(0) }, { ...a, dryRun: true });
    expect(dry.deliveries.map(({ id }) => id)).toEqual([ofA]);
    await bench.clock.advance(10);
    expect(await deliveries().prune({ olderThan: 0, ...a })).toBe(1);
    expect((await deliveries().list()).deliveries).toHaveLength(2);
  });

  it('cannot be widened by a filter for another tenant', async () => {
    await expect(deliveries().list({ tenant: 'b' }, { tenant: 'a' })).rejects.toMatchObject({
      code: 'invalid_option',
    });
  });

  it('see only their own deliveries if the scope is a class with a getter', async () => {
    const ofA = await publishDead('order.created', { tenant: 'a' });
    await publishDead('order.created', { tenant: 'b' });
    const a = new (class {
      get tenant(): string {
        return 'a';
      }
    })();

    expect((await deliveries().list({}, a)).deliveries.map(({ id }) => id)).toEqual([ofA]);
    expect((await deliveries().list(a)).deliveries.map(({ id }) => id)).toEqual([ofA]);
    expect(await deliveries().stats({}, a)).toMatchObject({ dead: 1 });
  });
});

describe('stats', () => {
  it('count deliveries by state, and return by how much the oldest is overdue', async () => {
    await publish('order.paid');
    receiver.script = () => 'hang';
    await bench.publisher.publish('order.created', {}, { delay: '1m' });
    const inTime = await deliveries().stats();
    await bench.clock.advance(60_000);
    await receiver.received(3);
    await bench.clock.advance(4_000);

    expect(inTime).toMatchObject({ pending: 1, delivered: 2, dead: 0, lag: 0 });
    expect(await deliveries().stats()).toEqual({
      pending: 1,
      delivered: 2,
      dead: 0,
      held: 0,
      lag: 4_000,
      endpoints: expect.arrayContaining([
        { endpointId: 'crm', pending: 1, delivered: 1, dead: 0, held: 0, lag: 4_000 },
        { endpointId: 'erp', pending: 0, delivered: 1, dead: 0, held: 0, lag: 0 },
      ]),
    });
    expect(await deliveries().stats({ endpointId: 'erp' })).toMatchObject({ pending: 0, lag: 0 });
  });

  it('have only the members that are declared', async () => {
    await publish('order.paid');
    const { endpoints } = await deliveries().stats({ endpointId: 'erp' });

    expect(endpoints.map((row) => Object.keys(row).toSorted())).toEqual([
      ['dead', 'delivered', 'endpointId', 'held', 'lag', 'pending', 'tenant'],
    ]);
  });
});

describe('prune', () => {
  it('deletes old finished deliveries, and keeps pending ones', async () => {
    const old = await publish('order.created');
    await bench.publisher.publish('order.created', {}, { delay: '3d' });
    await bench.clock.advance(86_400_000);
    const young = await publish('order.created');

    expect(await deliveries().prune({ olderThan: '12h' })).toBe(1);
    expect(await deliveries().get(old)).toBeUndefined();
    expect(await deliveries().stats()).toMatchObject({ pending: 1, delivered: 1 });
    expect(await deliveries().prune({ olderThan: new Date(bench.clock.now() + 1) })).toBe(1);
    expect(await deliveries().get(young)).toBeUndefined();
  });
});

describe('erase', () => {
  it('deletes everything about a tenant, and sends nothing of it any more', async () => {
    await publish('order.created', { tenant: 'a' });
    const retried = await publishDead('order.created', { tenant: 'a' });
    await bench.publisher.publish('order.created', {}, { tenant: 'a', delay: '1d' });
    const ofB = await publish('order.created', { tenant: 'b' });
    const requests = receiver.requests.length;

    expect(await deliveries().erase({ tenant: 'a' })).toEqual({ erased: 3, isComplete: true });
    await bench.clock.advance(2 * 86_400_000);
    expect(receiver.requests).toHaveLength(requests);
    expect(await deliveries().get(retried)).toBeUndefined();
    expect((await deliveries().list()).deliveries.map(({ id }) => id)).toEqual([ofB]);
    expect(await deliveries().erase({ tenant: 'a' })).toEqual({ erased: 0, isComplete: true });
  });

  it('deletes an event for all endpoints, and its id can be used again', async () => {
    await bench.publisher.publish('order.paid', {}, { id: 'paid', delay: '1d' });
    await bench.publisher.publish('order.paid', {}, { id: 'kept', delay: '1d' });

    expect(await deliveries().erase({ eventId: 'paid', tenant: 'a' })).toMatchObject({ erased: 0 });
    expect(await deliveries().erase({ eventId: 'paid' })).toEqual({ erased: 2, isComplete: true });
    expect(await deliveries().stats()).toMatchObject({ pending: 2 });
    const again = await bench.publisher.publish('order.paid', { other: true }, { id: 'paid' });
    expect(again.duplicate).not.toBe(true);
  });

  it('deletes the events about a subject', async () => {
    const subject = 'customer-7';
    await publish('order.created', { subject, tenant: 'a' });
    await publish('order.created', { subject });
    const kept = await publish('order.created', { subject: 'customer-8' });

    expect(await deliveries().erase({ tenant: 'a', subject })).toMatchObject({ erased: 1 });
    expect(await deliveries().erase({ subject })).toEqual({ erased: 1, isComplete: true });
    expect((await deliveries().list()).deliveries.map(({ id }) => id)).toEqual([kept]);
  });

  it('is incomplete while a delivery is being attempted', async () => {
    receiver.script = () => 'hang';
    const before = bench.reports.length;
    await bench.publisher.publish('order.created', {}, { tenant: 'a' });
    await receiver.received(1);
    const result = await deliveries().erase({ tenant: 'a' });
    receiver.answerHeld({ status: 500 });
    await bench.reported(before + 1);

    expect(result).toEqual({ erased: 0, isComplete: false });
    expect(await deliveries().erase({ tenant: 'a' })).toEqual({ erased: 1, isComplete: true });
    await bench.clock.advance(86_400_000);
    expect(receiver.requests).toHaveLength(1);
  });

  it.each([
    ['no member', {}],
    ['an undefined tenant', { tenant: undefined }],
    ['an undefined event', { eventId: undefined }],
    ['an undefined subject', { subject: undefined }],
    ['an unknown member', { status: 'dead' }],
    ['no filter', undefined],
  ])('refuses %s', async (_, filter) => {
    await expect(deliveries().erase(filter as never)).rejects.toMatchObject({
      code: 'invalid_option',
    });
  });
});

describe('an invalid filter or option', () => {
  it.each<[string, (all: WebhookDeliveries) => Promise<unknown>, RegExp]>([
    [
      'an unknown member',
      (all) => all.list({ endpoint: 'crm' } as never),
      /filter\.endpoint: unknown option; did you mean "endpointId"/,
    ],
    [
      'an unknown member of a redelivery',
      (all) => all.redeliver({ evnt: 'x' } as never),
      /filter\.evnt: unknown option/,
    ],
    ['an empty redelivery', (all) => all.redeliver({}), /new Date\(0\)/],
    [
      'a redelivery of an undefined event',
      (all) => all.redeliver({ event: undefined }),
      /filter\.event: is undefined/,
    ],
    [
      'a redelivery without a filter',
      (all) => all.redeliver(undefined as never),
      /must be an object/,
    ],
    ['a pending redelivery', (all) => all.redeliver({ status: 'pending' }), /status/],
    ['an unknown status', (all) => all.list({ status: 'failed' as never }), /status/],
    ['a time that is not a Date', (all) => all.list({ since: '2026' as never }), /since/],
    ['an invalid Date', (all) => all.list({ until: new Date('x') }), /until/],
    ['a limit of 0', (all) => all.list({}, { limit: 0 }), /limit.*500/],
    ['a limit above 500', (all) => all.list({}, { limit: 501 }), /limit.*500/],
    ['an invalid cursor', (all) => all.list({}, { after: 'bm9wZQ' }), /after/],
    [
      'a cursor before the epoch',
      (all) => all.list({}, { after: Buffer.from('[-8e15,"a"]').toString('base64url') }),
      /after/,
    ],
    [
      'a redelivery without bounds',
      (all) => all.redeliver({ event: 'x' }, { limit: 1e9 }),
      /limit/,
    ],
    [
      'a dry run that is a string',
      (all) => all.redeliver('id', { dryRun: 'no' as never }),
      /dryRun/,
    ],
    [
      'an unknown option',
      (all) => all.redeliver('id', { dryrun: true } as never),
      /did you mean "dryRun"/,
    ],
    ['a prune without a minimum age', (all) => all.prune({} as never), /olderThan/],
    ['a prune without options', (all) => all.prune(undefined as never), /olderThan/],
    ['a prune with an invalid duration', (all) => all.prune({ olderThan: 'long' }), /olderThan/],
    [
      'a prune with a longer duration than a database can subtract',
      (all) => all.prune({ olderThan: '36501d' }),
      /olderThan: must be a duration of at most '36500d'/,
    ],
  ])('refuses %s', async (_, call, message) => {
    await expect(call(deliveries())).rejects.toMatchObject({
      code: 'invalid_option',
      message: expect.stringMatching(message),
    });
  });
});

describe('the limit of redeliveries', () => {
  const reached = {
    code: 'limit_reached',
    message: expect.stringMatching(/sent 3 deliveries again in a minute.*try again in 60 s/),
  };

  beforeEach(async () => {
    await start({ retry: { attempts: 1 }, endpointLimits: { redeliveriesPerMinute: 3 } });
  });

  it('bounds those of a tenant in a minute, by id and by filter', async () => {
    const ids = [];
    for (let n = 0; n < 4; n++) ids.push(await publishDead('order.created', { tenant: 'a' }));
    const filter = { event: 'order.created' };
    const tenant = { tenant: 'a' };
    await deliveries().redeliver(ids[0]!, tenant);
    const { deliveries: listed } = await deliveries().redeliver(filter, {
      ...tenant,
      dryRun: true,
    });
    const { deliveries: redelivered, more } = await deliveries().redeliver(filter, tenant);

    expect([listed.length, redelivered.length, more]).toEqual([3, 2, true]);
    await expect(deliveries().redeliver(filter, tenant)).rejects.toMatchObject(reached);
    await expect(deliveries().redeliver(ids[0]!, tenant)).rejects.toMatchObject(reached);
    // Four first attempts, and those of the three.
    await bench.reported(7);
    await bench.clock.advance(60_000);
    expect(await deliveries().redeliver(filter, tenant)).toMatchObject({
      deliveries: [{ redelivered: true }],
      more: false,
    });
  });

  it('lets a tenant send all that was delivered again, over several minutes', async () => {
    const tenant = { tenant: 'a' };
    const ids = [];
    for (let n = 0; n < 7; n++) ids.push(await publish('order.created', tenant));
    await bench.clock.advance(1);
    const wanted = { status: 'delivered', until: new Date(bench.clock.now()) } as const;
    const sent: string[][] = [];
    for (let more = true; more; await bench.clock.advance(60_000)) {
      const before = bench.reports.length;
      const result = await deliveries().redeliver(wanted, tenant);
      sent.push(result.deliveries.filter((one) => one.redelivered).map(({ id }) => id));
      await bench.reported(before + sent.at(-1)!.length);
      ({ more } = result);
    }

    expect(sent.map(({ length }) => length)).toEqual([3, 3, 1]);
    expect(sent.flat().toSorted()).toEqual(ids.toSorted());
  });

  it('does not count what is skipped', async () => {
    const tenant = { tenant: 'a' };
    const id = await publish('order.created', tenant);
    const again = async () => deliveries().redeliver(id, { ...tenant, unlessDelivered: true });
    for (let n = 0; n < 4; n++) {
      expect(await again()).toMatchObject({ deliveries: [{ reason: 'delivered' }] });
    }
    for (let n = 0; n < 4; n++) await publishDead('order.created', tenant);
    const { deliveries: redelivered, more } = await deliveries().redeliver(
      { event: 'order.created' },
      tenant,
    );

    expect([redelivered.length, more]).toEqual([3, true]);
    await expect(again()).rejects.toMatchObject(reached);
  });

  it('is not that of another tenant, or of calls without one', async () => {
    const ids = [];
    for (let n = 0; n < 4; n++) ids.push(await publishDead('order.created', { tenant: 'a' }));
    const other = await publishDead('order.created', { tenant: 'b' });
    for (const id of ids.slice(0, 3)) await deliveries().redeliver(id, { tenant: 'a' });

    expect((await deliveries().redeliver(other, { tenant: 'b' })).deliveries).toHaveLength(1);
    expect((await deliveries().redeliver(ids[3]!)).deliveries).toHaveLength(1);
    await expect(deliveries().redeliver(ids[3]!, { tenant: 'a' })).rejects.toMatchObject(reached);
  });
});
