import assert from 'node:assert/strict';
import { defined } from '../options/defined.js';
import {
  COUNT_GRAIN,
  type DeliveryCountFilter,
  type DeliveryCounts,
  type DeliveryFilter,
} from '../queue/webhook-queue.js';
import type { DeliveryPayload, DeliveryRecord } from '../queue/webhook-delivery.js';
import {
  AHEAD,
  type Bench,
  comparableDelivery,
  DELIVERED,
  HOUR,
  LONG_STEP,
  PAYLOADS_KEPT,
  type QueueRules,
  retry,
} from './webhook-queue.bench.js';

const DEAD = { type: 'dead', reason: 'dns', attempts: 1 } as const;

/** Payloads that a text column, a driver or an encoding may corrupt. */
const PAYLOADS: Readonly<Record<string, DeliveryPayload>> = {
  'every-octet': bytes(Uint8Array.from({ length: 256 }, (_, octet) => octet)),
  'no-octets': bytes(new Uint8Array(0)),
  'no-data': { kind: 'json', bytes: undefined, contentType: 'application/json' },
  nul: bytes(octetsOf('{"é":"\\u0000"}\0')),
  unicode: bytes(octetsOf('"🧾 \\\\x41 $1 ?"')),
  // A view of a part of a larger buffer.
  part: bytes(octetsOf('before|within|behind').subarray(7, 13)),
};

/** The rules of the contract on what a queue answers about its deliveries. */
export const HISTORY_RULES: QueueRules = {
  'finds a recorded delivery as pending, with its due time': async (bench) => {
    const delivery = bench.delivery('fresh');
    const notBefore = bench.now() + HOUR;
    await bench.queue.enqueue([{ delivery, notBefore }]);

    assertRecord(await bench.find('fresh'), {
      delivery,
      status: 'pending',
      attempts: 0,
      nextAttemptAt: notBefore,
      updatedAt: delivery.createdAt,
    });
    assert.deepEqual(await bench.queue.attempts('fresh'), []);
  },

  'finds known deliveries in the order of their ids, without recording anything': async (bench) => {
    await bench.enqueueLater(bench.delivery('asked'), bench.delivery('other'));

    const found = await bench.queue.find(['unknown', 'other', 'asked', 'unknown']);
    const ids = found.map((record) => record?.delivery.id);
    assert.deepEqual(ids, [undefined, 'other', 'asked', undefined]);
    assert.deepEqual(await bench.queue.find([]), []);
    assert.deepEqual(await bench.queue.attempts('unknown'), []);
    assert.deepEqual(await bench.enqueueLater(bench.delivery('unknown')), [undefined]);
  },

  'returns every member of a delivery': async (bench) => {
    const whole = bench.delivery('whole', {
      tenant: 'mandant-ü',
      audience: ['https://a.example', 'https://b.example'],
      subject: 'Bestellung №5 🧾',
      method: 'POST',
      profile: 'swt-draft-02',
      round: 3,
      contentDigest: 'sha256:1',
      trace: { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' },
    });
    const { endpointId: _, ...rest } = bench.delivery('by-url');
    const byUrl = { ...rest, url: "https://crm.example/hooks?a='$1'&b=:name&c=%22\\" };
    const received = bench.receivedDelivery('received', 'shop');
    await bench.enqueueLater(whole, byUrl, received);

    for (const delivery of [whole, byUrl, received]) {
      assert.deepEqual(defined((await bench.find(delivery.id))!.delivery), delivery);
    }
    for (const listed of await bench.list()) assert.ok(!('payload' in listed.delivery));
  },

  'returns payloads byte for byte': async (bench) => {
    const deliveries = Object.entries(PAYLOADS).map(([id, payload]) =>
      bench.delivery(id, { payload }),
    );
    await bench.run(...deliveries.map((delivery) => ({ delivery, run: DELIVERED })));

    for (const delivery of deliveries) {
      const run = bench.received.find(({ id }) => id === delivery.id)!;
      const found = (await bench.find(delivery.id))!;
      for (const { payload } of [comparableDelivery(run), found.delivery]) {
        assert.deepEqual(defined(payload), defined(delivery.payload));
      }
    }
  },

  'stores a failed attempt, and when the next one is due': async (bench) => {
    const delivery = bench.delivery('retried');
    const at = bench.now() + HOUR;
    const attempt = bench.attempt(1, { statusCode: 503, reason: 'http_503', answer: 'später 🕐' });
    const before = bench.now();
    await bench.run({ delivery, run: { outcome: retry(at), attempt } });
    await bench.until(async () => (await bench.find('retried'))!.nextAttemptAt === at);

    const record = (await bench.find('retried'))!;
    assertRecord(record, {
      delivery,
      status: 'pending',
      attempts: 1,
      nextAttemptAt: at,
      reason: 'http_503',
      updatedAt: record.updatedAt,
    });
    assert.ok(record.updatedAt > before - AHEAD);
    assert.deepEqual((await bench.queue.attempts('retried')).map(defined), [attempt]);
  },

  'shows an outcome and its attempt together': async (bench) => {
    const open = await bench.consumeGated();
    await bench.enqueue('together');
    await bench.untilRuns(1);
    assert.equal(await bench.stateOf('together'), 'pending 0');
    assert.deepEqual(await bench.queue.attempts('together'), []);
    open();

    await bench.until(async () => {
      // Read in this order, a status without its attempt would show.
      const state = await bench.stateOf('together');
      const attempts = await bench.queue.attempts('together');
      if (state === 'delivered 1') assert.equal(attempts.length, 1);
      return attempts.length === 1 && (await bench.stateOf('together')) === 'delivered 1';
    });
  },

  'stores a delivered delivery without a reason and a next attempt': async (bench) => {
    const delivery = bench.delivery('delivered');
    const failed = bench.attempt(1, { reason: 'http_503' });
    const signed = ['j-1', 1_764_000_000, 1_764_000_300, 'HS256', 'k-1'] as const;
    const answered = { at: failed.at + 1, statusCode: 204, method: 'HEAD' } as const;
    const success = bench.attempt(2, { ...answered, signed });
    await bench.consume((_, attempt) =>
      attempt === 1
        ? { outcome: retry(bench.now()), attempt: failed }
        : { outcome: DELIVERED, attempt: success },
    );
    await bench.enqueue('delivered');
    await bench.untilState('delivered', 'delivered 2');

    const record = (await bench.find('delivered'))!;
    const { updatedAt } = record;
    assertRecord(record, { delivery, status: 'delivered', attempts: 2, updatedAt });
    assert.deepEqual((await bench.queue.attempts('delivered')).map(defined), [failed, success]);
  },

  'stores a dead delivery that was never attempted': async (bench) => {
    const delivery = bench.delivery('dead');
    const outcome = { type: 'dead', reason: 'unknown_endpoint', attempts: 0 } as const;
    await bench.run({ delivery, run: { outcome } });

    const record = (await bench.find('dead'))!;
    const { updatedAt } = record;
    const reason = 'unknown_endpoint';
    assertRecord(record, { delivery, status: 'dead', attempts: 0, reason, updatedAt });
    assert.deepEqual(await bench.queue.attempts('dead'), []);
  },

  'stores the reason of a deferral, and keeps the last one if there is none': async (bench) => {
    const at = bench.now() + HOUR;
    await bench.consume(({ id }, attempt) => {
      if (id === 'paused') return { type: 'defer', at, reason: 'endpoint_paused' };
      return attempt === 1 ? retry(bench.now()) : { type: 'defer', at };
    });
    await bench.enqueue('paused', 'put-off');

    const reasons = async () =>
      (await bench.queue.find(['paused', 'put-off'])).map((record) => [
        record?.attempts,
        record?.nextAttemptAt,
        record?.reason,
      ]);
    const expected = [
      [0, at, 'endpoint_paused'],
      [1, at, 'http_503'],
    ];
    await bench.until(async () => String(await reasons()) === String(expected));
    assert.deepEqual(await bench.queue.attempts('paused'), []);
  },

  'stores at least the last 20 attempts, of all rounds and in order': async (bench) => {
    const start = bench.now();
    let round = 1;
    await bench.consume((_, attempt) => {
      const at = start + bench.runs.length;
      const failed = bench.attempt(attempt, { at, reason: 'http_503' });
      if (round === 1 && attempt === 12) {
        return { outcome: { ...DEAD, attempts: 12 }, attempt: failed };
      }
      if (round === 2 && attempt === 10) {
        return { outcome: DELIVERED, attempt: bench.attempt(attempt, { at }) };
      }
      return { outcome: retry(bench.now()), attempt: failed };
    });
    await bench.enqueue('stubborn');
    await bench.untilState('stubborn', 'dead 12');
    round = 2;
    await bench.queue.redeliver(['stubborn']);
    await bench.untilState('stubborn', 'delivered 10');

    const numbers = (await bench.queue.attempts('stubborn')).map(({ attempt }) => attempt);
    const all = bench.runs.map(({ attempt }) => attempt);
    assert.equal(all.length, 22);
    assert.ok(numbers.length >= 20);
    assert.deepEqual(numbers, all.slice(-numbers.length));
  },

  'lists newest first, and by id within the same time': async (bench) => {
    const times: [string, number][] = [
      ['b', 1],
      ['a', 1],
      ['Z', 1],
      ['-', 1],
      ['_', 1],
      ['old', 0],
      ['new', 2],
    ];
    await bench.enqueueLater(...times.map(([id, ms]) => createdAfter(bench, id, ms)));

    // By code units, whatever the collation of a database.
    assert.deepEqual(await bench.ids(), ['new', 'b', 'a', '_', 'Z', '-', 'old']);
  },

  'returns pages without gaps or repetitions, also across equal times': async (bench) => {
    const ids = Array.from({ length: 12 }, (_, index) => `page-${String(index).padStart(2, '0')}`);
    await bench.enqueueLater(...ids.map((id, index) => createdAfter(bench, id, index >> 2)));

    assert.deepEqual(await idsInPages(bench, {}, 5), ids.toReversed());
    const last = { createdAt: bench.createdAt, id: ids[0]! };
    assert.deepEqual(await bench.queue.list({}, { limit: 5, after: last }), []);
  },

  'filters by each member and by combinations': async (bench) => {
    const at = (ms: number) => bench.createdAt + ms;
    const marked = bench.delivery('marked', {
      tenant: 'a',
      endpointId: 'erp',
      eventId: 'event-7',
      event: 'order.paid',
      createdAt: at(5),
    });
    const received = { ...bench.receivedDelivery('received', 'shop'), createdAt: at(7) };
    await bench.enqueueLater(
      createdAfter(bench, 'early', 0),
      createdAfter(bench, 'late', 10),
      received,
    );
    await bench.run({ delivery: marked, run: DEAD });

    const asked: DeliveryFilter[] = [
      { tenant: 'a' },
      { endpointId: 'erp' },
      { eventId: 'event-7' },
      { event: 'order.paid' },
      { status: 'dead' },
      { since: at(5), until: at(6) },
      { tenant: 'a', endpointId: 'erp', event: 'order.paid', status: 'dead' },
    ];
    for (const filter of asked) assert.deepEqual(await bench.ids(filter), ['marked']);
    assert.deepEqual(await bench.ids({ tenant: undefined, until: at(5) }), ['early']);
    assert.deepEqual(await bench.ids({ since: at(5) }), ['late', 'received', 'marked']);
    assert.deepEqual(await bench.ids({ status: 'pending' }), ['late', 'received', 'early']);
    assert.deepEqual(await bench.ids({ receiver: 'shop' }), ['received']);
    assert.deepEqual(await bench.ids({ receiver: 'shop', status: 'dead' }), []);
    assert.deepEqual(await bench.ids({ receiver: 'other' }), []);
    assert.deepEqual(await bench.ids({ tenant: 'a', endpointId: 'crm' }), []);
    // A name is neither a glob, nor a LIKE pattern, nor SQL.
    for (const event of ['order.*', 'order.%', 'order_paid', 'ORDER.PAID', "' OR ''='"]) {
      assert.deepEqual(await bench.ids({ event }), []);
    }
  },

  'lists a delivery under its new status after each change': async (bench) => {
    const dead = bench.delivery('dead');
    await bench.run(
      { delivery: bench.delivery('delivered'), run: DELIVERED },
      { delivery: dead, run: DEAD },
      { delivery: bench.delivery('waiting'), run: retry(bench.now() + HOUR) },
    );

    assert.deepEqual(await bench.ids({ status: 'delivered' }), ['delivered']);
    assert.deepEqual(await bench.ids({ status: 'dead' }), ['dead']);
    assert.deepEqual(await bench.ids({ status: 'pending' }), ['waiting']);
    const [listed] = await bench.list({ status: 'dead' });
    const { delivery: _, ...state } = (await bench.find('dead'))!;
    const { payload: __, ...facts } = dead;
    assert.deepEqual(defined({ ...listed!, delivery: defined(listed!.delivery) }), {
      delivery: facts,
      ...defined(state),
    });
  },

  'counts by endpoint and tenant, with the earliest due time': async (bench) => {
    const due = bench.now() + HOUR;
    const tenant = 'a';
    await bench.queue.enqueue([
      { delivery: bench.delivery('p1'), notBefore: due + 300 },
      { delivery: bench.delivery('p2'), notBefore: due + 200 },
      { delivery: bench.delivery('x1', { tenant }), notBefore: due + 100 },
    ]);
    await bench.run(
      { delivery: bench.delivery('r1'), run: retry(due + 400) },
      { delivery: bench.delivery('d1'), run: DELIVERED },
      { delivery: bench.delivery('e1', { endpointId: 'erp' }), run: DEAD },
    );
    const own = { endpointId: 'receiver', pending: 3, delivered: 1, dead: 0, oldestDue: due + 200 };
    const ofTenant = { ...own, tenant, pending: 1, delivered: 0, oldestDue: due + 100 };
    const erp = { endpointId: 'erp', pending: 0, delivered: 0, dead: 1 };

    assert.deepEqual(await countsOf(bench), [erp, own, ofTenant]);
    assert.deepEqual(await countsOf(bench, { tenant }), [ofTenant]);
    assert.deepEqual(await countsOf(bench, { endpointId: 'erp' }), [erp]);
    const unfinished = [erp, { ...own, delivered: 0 }, ofTenant];
    assert.deepEqual(await countsOf(bench, { unfinished: true }), unfinished);
    assert.deepEqual(await countsOf(bench, { endpointId: 'unknown' }), []);
    assert.deepEqual(await countsOf(bench, { since: bench.createdAt + 1 }), []);
    assert.deepEqual(await countsOf(bench, { until: bench.createdAt }), []);
  },

  'counts by steps of the time of recording': async (bench) => {
    await bench.run(
      { delivery: createdAfter(bench, 'first', 0), run: DELIVERED },
      { delivery: createdAfter(bench, 'last-of-first', 9), run: DEAD },
      { delivery: createdAfter(bench, 'third', 20), run: DELIVERED },
      { delivery: createdAfter(bench, 'too-late', 25), run: DELIVERED },
    );
    const since = bench.createdAt;
    const steps = await countsOf(bench, { since, until: since + 25, step: 10 });

    const rows = steps.map(({ at, delivered, dead }) => [at! - since, delivered, dead]);
    assert.deepEqual(
      rows.toSorted(([one], [other]) => one! - other!),
      [
        [0, 1, 1],
        [20, 1, 0],
      ],
    );
  },

  'counts by steps of whole minutes, also after redeliveries and deletions': async (bench) => {
    let dies = true;
    await bench.consume(({ id }) => (id === 'b' && dies ? DEAD : DELIVERED));
    await bench.enqueue('a', 'b', 'c');
    await bench.untilState('b', 'dead 1');
    for (const id of ['a', 'c']) await bench.untilState(id, 'delivered 1');
    const since = Math.floor(bench.createdAt / COUNT_GRAIN) * COUNT_GRAIN;
    const range = { since, until: since + 2 * COUNT_GRAIN };
    const count = async (): Promise<unknown> => {
      const steps = await countsOf(bench, { ...range, step: COUNT_GRAIN });
      return steps.map(({ at, delivered, dead }) => [at! - since, delivered, dead]);
    };
    const first = await count();
    dies = false;
    await bench.queue.redeliver(['b']);
    await bench.untilState('b', 'delivered 1');
    const second = await count();
    const all = await countsOf(bench);
    const before = await countsOf(bench, { until: since });
    await bench.queue.prune(bench.createdAt + HOUR);

    assert.deepEqual([first, second], [[[0, 2, 1]], [[0, 3, 0]]]);
    const totals = all.map(({ delivered, dead }) => [delivered, dead]);
    assert.deepEqual(totals, [[3, 0]]);
    assert.deepEqual([before, await count()], [[], []]);
  },

  'counts deliveries to URLs together, and received events by receiver': async (bench) => {
    const { endpointId: _, ...rest } = bench.delivery('url-1');
    const notBefore = bench.now() + HOUR;
    const deliveries = [
      { ...rest, url: 'https://a.example/' },
      { ...rest, id: 'url-2', url: 'https://b.example/' },
      bench.receivedDelivery('shop-1', 'shop'),
      bench.receivedDelivery('shop-2', 'shop'),
    ];
    await bench.queue.enqueue(deliveries.map((delivery) => ({ delivery, notBefore })));
    const two = { pending: 2, delivered: 0, dead: 0, oldestDue: notBefore };

    assert.deepEqual(await countsOf(bench), [two, { receiver: 'shop', ...two }]);
    assert.deepEqual(await countsOf(bench, { receiver: 'shop' }), [{ receiver: 'shop', ...two }]);
  },

  'prunes old finished deliveries, and never pending ones': async (bench) => {
    await bench.enqueueLater(createdAfter(bench, 'old-pending', 0));
    await bench.run(
      { delivery: createdAfter(bench, 'old-delivered', 0), run: DELIVERED },
      { delivery: createdAfter(bench, 'old-dead', 0), run: DEAD },
      { delivery: createdAfter(bench, 'edge', 10), run: DELIVERED },
    );

    const before = bench.createdAt + 10;
    assert.equal(await bench.queue.prune(before), 2);
    assert.deepEqual(await bench.ids(), ['edge', 'old-pending']);
    assert.equal(await bench.find('old-delivered'), undefined);
    assert.deepEqual(await bench.queue.attempts('old-delivered'), []);
    assert.equal(await bench.queue.prune(before), 0);
    // A pruned id is unknown.
    assert.deepEqual(await bench.enqueueLater(bench.delivery('old-dead')), [undefined]);
  },

  'prunes the deliveries of one tenant': async (bench) => {
    await bench.run(
      { delivery: bench.delivery('of-a', { tenant: 'a' }), run: DELIVERED },
      { delivery: bench.delivery('of-b', { tenant: 'b' }), run: DELIVERED },
      { delivery: bench.delivery('of-none'), run: DELIVERED },
    );

    assert.equal(await bench.queue.prune(bench.createdAt + 1, { tenant: 'a' }), 1);
    assert.deepEqual(await bench.ids(), ['of-none', 'of-b']);
  },

  'erases the deliveries of one tenant, pending ones too': async (bench) => {
    await bench.run(
      { delivery: bench.delivery('done-a', { tenant: 'a' }), run: DELIVERED },
      { delivery: bench.delivery('dead-a', { tenant: 'a' }), run: DEAD },
      { delivery: bench.delivery('done-b', { tenant: 'b' }), run: DELIVERED },
    );
    await bench.enqueueLater(
      bench.delivery('waits-a', { tenant: 'a' }),
      bench.delivery('waits-b', { tenant: 'b' }),
    );

    assert.equal(await bench.queue.erase({ tenant: 'a' }), 3);
    assert.deepEqual([...(await bench.ids())].sort(), ['done-b', 'waits-b']);
    assert.deepEqual(await bench.queue.find(['waits-a', 'dead-a']), [undefined, undefined]);
    assert.deepEqual(await bench.queue.attempts('dead-a'), []);
    assert.deepEqual(await countsOf(bench, { tenant: 'a' }), []);
    assert.equal(await bench.queue.erase({ tenant: 'a' }), 0);
    // An erased id is unknown.
    assert.deepEqual(await bench.enqueueLater(bench.delivery('waits-a')), [undefined]);
  },

  'erases the deliveries of events with a subject': async (bench) => {
    const [tenant, subject] = ['a', 'customer-7'];
    await bench.run(
      { delivery: bench.delivery('done', { tenant, subject }), run: DELIVERED },
      { delivery: bench.delivery('dead', { subject }), run: DEAD },
      { delivery: bench.delivery('other', { tenant, subject: 'customer-8' }), run: DELIVERED },
    );
    await bench.enqueueLater(
      bench.delivery('waits', { subject }),
      bench.delivery('none', { tenant }),
      bench.receivedDelivery('received', 'shop'),
    );

    assert.deepEqual(await bench.ids({ tenant, subject }), ['done']);
    assert.equal(await bench.queue.erase({ tenant, subject }), 1);
    assert.equal(await bench.queue.erase({ subject }), 2);
    assert.deepEqual([...(await bench.ids())].sort(), ['none', 'other', 'received']);
    assert.equal((await bench.find('other'))!.delivery.event, 'contract.checked');
  },

  'erases what matches each member of a filter, and nothing else': async (bench) => {
    const { createdAt } = bench;
    const filters: Readonly<Record<string, DeliveryFilter>> = {
      tenant: { tenant: 'a' },
      endpointId: { endpointId: 'erp' },
      subject: { subject: 'customer-7' },
      eventId: { eventId: 'event-7' },
      event: { event: 'order.paid' },
      receiver: { receiver: 'shop' },
      status: { status: 'dead' },
      since: { since: createdAt + 20 },
      until: { until: createdAt },
    };
    await bench.run({ delivery: bench.delivery('status'), run: DEAD });
    await bench.enqueueLater(
      ...['tenant', 'endpointId', 'subject', 'eventId', 'event'].map((id) =>
        bench.delivery(id, filters[id]),
      ),
      bench.receivedDelivery('receiver', 'shop'),
      createdAfter(bench, 'since', 20),
      createdAfter(bench, 'until', -20),
      bench.delivery('none'),
    );
    let left = await bench.ids();

    for (const [id, filter] of Object.entries(filters)) {
      assert.equal(await bench.queue.erase(filter), 1, `erase by ${id}`);
      left = left.filter((other) => other !== id);
      assert.deepEqual(await bench.ids(), left, `erase by ${id}`);
    }
    assert.deepEqual(left, ['none']);
  },

  'keeps a delivery that is being attempted until it is erased again': async (bench) => {
    const open = await bench.consumeGated();
    await bench.queue.enqueue([bench.due('runs', { tenant: 'a' })]);
    await bench.untilRuns(1);
    await bench.enqueueLater(bench.delivery('waits', { tenant: 'a' }));

    assert.equal(await bench.queue.erase({ tenant: 'a' }), 1);
    assert.deepEqual(await bench.ids(), ['runs']);
    open();
    await bench.untilState('runs', 'delivered 1');
    assert.equal(await bench.queue.erase({ tenant: 'a' }), 1);
    assert.deepEqual(await bench.ids(), []);
  },

  'stores 1,000 deliveries': async (bench) => {
    const ids = Array.from(
      { length: 1_000 },
      (_, index) => `many-${String(index).padStart(3, '0')}`,
    );
    await bench.enqueueLater(...ids.map((id, index) => createdAfter(bench, id, index >> 4)));

    assert.deepEqual(await idsInPages(bench, { endpointId: 'receiver' }, 137), ids.toReversed());
    assert.equal((await bench.queue.counts({}))[0]?.pending, 1_000);
  },
};

/** The rules of the contract on queues that drop payloads before their deliveries. */
export const PAYLOAD_RULES: QueueRules = {
  'drops the payloads of delivered deliveries after their time, and nothing else': async (
    bench,
  ) => {
    const delivered = bench.delivery('delivered', { contentDigest: 'sha256:1', subject: 's' });
    const empty = bench.delivery('empty', { payload: PAYLOADS['no-data']! });
    await bench.run({ delivery: delivered, run: DELIVERED }, { delivery: empty, run: DELIVERED });
    const before = (await bench.find('delivered'))!;
    const attempts = await bench.queue.attempts('delivered');
    await bench.advance(PAYLOADS_KEPT / 2);
    const half = await bench.find('delivered');
    const dropped = async () => (await bench.find('delivered'))!.payloadDropped === true;
    await bench.until(dropped, LONG_STEP);

    assert.deepEqual(half, before);
    const payload = { ...delivered.payload, bytes: undefined };
    const payloadDropped = true as const;
    const after = { ...before, delivery: { ...delivered, payload }, payloadDropped };
    assert.deepEqual(definedRecord((await bench.find('delivered'))!), definedRecord(after));
    assert.equal((await bench.find('empty'))!.payloadDropped, undefined);
    const listed = await bench.list({ status: 'delivered', eventId: delivered.eventId });
    const flags = listed.map((one) => one.payloadDropped);
    assert.deepEqual(flags, [true]);
    assert.deepEqual(await bench.queue.attempts('delivered'), attempts);
    const [known] = await bench.enqueueLater(delivered);
    assert.equal(known?.delivery.contentDigest, 'sha256:1');
    assert.equal(known?.payloadDropped, true);
  },

  'keeps the payloads of dead and pending deliveries': async (bench) => {
    const delivery = bench.delivery('dead');
    const waiting = bench.delivery('waiting');
    await bench.run(
      { delivery: bench.delivery('delivered'), run: DELIVERED },
      { delivery, run: DEAD },
      { delivery: waiting, run: retry(bench.now() + 1_000 * HOUR) },
    );
    const dropped = async () => (await bench.find('delivered'))!.payloadDropped === true;
    await bench.until(dropped, LONG_STEP);
    await bench.queue.redeliver(['dead']);
    await bench.untilRuns(4);

    assert.deepEqual(comparableDelivery(bench.received.at(-1)!).payload, delivery.payload);
    assert.deepEqual((await bench.find('waiting'))!.delivery.payload, waiting.payload);
  },
};

/** A delivery that was created some milliseconds after the first ones of its case. */
function createdAfter(bench: Bench, id: string, ms: number) {
  return bench.delivery(id, { createdAt: bench.createdAt + ms });
}

async function idsInPages(bench: Bench, filter: DeliveryFilter, limit: number): Promise<string[]> {
  const ids: string[] = [];
  let after: { createdAt: number; id: string } | undefined;
  for (;;) {
    const page = await bench.queue.list(filter, { limit, after });
    ids.push(...page.map(({ delivery }) => delivery.id));
    if (page.length < limit) return ids;
    after = page.at(-1)!.delivery;
  }
}

/** Counts in the order of endpoint, receiver and tenant. */
async function countsOf(bench: Bench, filter: DeliveryCountFilter = {}): Promise<DeliveryCounts[]> {
  const place = ({ endpointId = '', receiver = '', tenant = '' }: DeliveryCounts): string =>
    [endpointId, receiver, tenant].join(' ');
  const counts = await bench.queue.counts(filter);
  return counts.map(defined).toSorted((a, b) => (place(a) < place(b) ? -1 : 1));
}

function assertRecord(record: Awaited<ReturnType<Bench['find']>>, expected: object): void {
  assert.ok(record);
  assert.deepEqual(definedRecord(record), expected);
}

function definedRecord(record: DeliveryRecord): object {
  const { payload, ...facts } = record.delivery;
  return defined({ ...record, delivery: defined({ ...facts, payload: defined(payload) }) });
}

function octetsOf(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

function bytes(octets: Uint8Array): DeliveryPayload {
  return { kind: 'bytes', bytes: octets, contentType: 'application/octet-stream' };
}
