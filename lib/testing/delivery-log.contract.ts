import assert from 'node:assert/strict';
import type { DeliveryLog, LoggedDelivery } from '../deliveries/delivery-log.js';
import type { MaybePromise } from '../token/maybe-promise.js';
import type { ContractCase } from './contract-case.interface.js';
import {
  attemptMade,
  changed,
  enqueued,
  LogReading,
  NOW,
  PAYLOADS,
} from './delivery-log.contract-data.js';

/** How the contract creates logs to test. */
export interface DeliveryLogContractOptions {
  /** Creates an empty log for one case, with capacity for 1,000 pending and 20 finished deliveries. */
  readonly create: () => MaybePromise<DeliveryLog>;
  /** Closes the log after the case. */
  readonly close?: ((log: DeliveryLog) => MaybePromise<void>) | undefined;
}

/**
 * The contract of {@link DeliveryLog}, as cases for any test framework.
 *
 * @example
 * ```ts
 * for (const { name, run } of deliveryLogContract(() => new MyDeliveryLog())) it(name, run);
 * ```
 */
export function deliveryLogContract(
  options: DeliveryLogContractOptions | DeliveryLogContractOptions['create'],
): ContractCase[] {
  const { create, close } = typeof options === 'function' ? { create: options } : options;
  return Object.entries(RULES).map(([name, rule]) => ({
    name,
    run: async () => {
      const log = await create();
      try {
        await rule(log, new LogReading(log));
      } finally {
        await close?.(log);
      }
    },
  }));
}

type Rule = (log: DeliveryLog, read: LogReading) => Promise<void>;

const RULES: Record<string, Rule> = {
  'stores a recorded delivery as pending, with its due time': async (log, read) => {
    const item = enqueued('fresh', {}, NOW + 5_000);
    await log.record([item]);

    assert.deepEqual(await read.find('fresh'), {
      delivery: item.delivery,
      status: 'pending',
      attempts: 0,
      nextAttemptAt: NOW + 5_000,
      updatedAt: item.delivery.createdAt,
    });
    assert.deepEqual(await log.attempts('fresh'), []);
  },

  'returns nothing for an unknown id': async (log) => {
    await log.record([enqueued('other')]);

    assert.equal(await log.find('nobody'), undefined);
    assert.deepEqual(await log.attempts('nobody'), []);
    await log.record([]);
    await log.change([]);
  },

  'returns every member of a delivery': async (log, read) => {
    const whole = enqueued('whole', {
      tenant: 'mandant-ü',
      audience: ['https://a.example', 'https://b.example'],
      subject: 'Bestellung №5 🧾',
      method: 'POST',
      profile: 'swt-draft-02',
      round: 3,
    });
    const { endpointId: _, ...rest } = enqueued('by-url').delivery;
    const byUrl = { ...rest, url: "https://crm.example/hooks?a='$1'&b=:name&c=%22\\" };
    await log.record([whole, { delivery: byUrl, notBefore: NOW }]);

    assert.deepEqual((await read.find('whole'))?.delivery, whole.delivery);
    assert.deepEqual((await read.find('by-url'))?.delivery, byUrl);
  },

  'returns payloads byte for byte': async (log, read) => {
    const items = Object.entries(PAYLOADS).map(([id, payload]) => enqueued(id, { payload }));
    await log.record(items.slice(1));
    // A change that arrives first inserts the delivery with its payload.
    await log.change([changed(items[0]!, { status: 'delivered', attempts: 1 })]);

    for (const { delivery } of items) {
      assert.deepEqual((await read.find(delivery.id))?.delivery.payload, delivery.payload);
    }
  },

  'stores a failed attempt, and when the next one is due': async (log, read) => {
    const item = enqueued('retried');
    const made = attemptMade(1, { statusCode: 503, reason: 'http_503', answer: 'später 🕐' });
    await log.record([item]);
    await log.change([
      changed(item, {
        attempts: 1,
        nextAttemptAt: NOW + 60_000,
        reason: 'http_503',
        at: NOW + 20,
        made,
      }),
    ]);

    assert.deepEqual(await read.find('retried'), {
      delivery: item.delivery,
      status: 'pending',
      attempts: 1,
      nextAttemptAt: NOW + 60_000,
      reason: 'http_503',
      updatedAt: NOW + 20,
    });
    assert.deepEqual(await log.attempts('retried'), [made]);
  },

  'stores a delivered delivery without a reason and a next attempt': async (log, read) => {
    const item = enqueued('delivered');
    const failed = attemptMade(1, { reason: 'timeout' });
    const made = attemptMade(2, { statusCode: 204, method: 'HEAD' });
    await log.record([item]);
    await log.change([
      changed(item, { attempts: 1, nextAttemptAt: NOW + 5_000, reason: 'timeout', made: failed }),
      changed(item, { status: 'delivered', attempts: 2, at: NOW + 2_000, made }),
    ]);

    assert.deepEqual(await read.find('delivered'), {
      delivery: item.delivery,
      status: 'delivered',
      attempts: 2,
      updatedAt: NOW + 2_000,
    });
    assert.deepEqual(await log.attempts('delivered'), [failed, made]);
  },

  'stores a dead delivery, also one without an attempt': async (log, read) => {
    const item = enqueued('dead');
    await log.record([item]);
    await log.change([
      changed(item, { status: 'dead', attempts: 0, reason: 'unknown_endpoint', at: NOW + 9 }),
    ]);

    assert.deepEqual(await read.find('dead'), {
      delivery: item.delivery,
      status: 'dead',
      attempts: 0,
      reason: 'unknown_endpoint',
      updatedAt: NOW + 9,
    });
    assert.deepEqual(await log.attempts('dead'), []);
  },

  'keeps the last reason of a delivery that is deferred': async (log, read) => {
    const item = enqueued('put-off');
    await log.change([
      changed(item, { attempts: 1, nextAttemptAt: NOW + 5_000, reason: 'dns', at: NOW + 1 }),
      changed(item, { attempts: 1, nextAttemptAt: NOW + 9_000, at: NOW + 2 }),
    ]);

    const { reason, nextAttemptAt } = (await read.find('put-off'))!;
    assert.deepEqual({ reason, nextAttemptAt }, { reason: 'dns', nextAttemptAt: NOW + 9_000 });
  },

  'does not return a delivery to pending that is recorded after its change': async (log, read) => {
    const item = enqueued('overtaken');
    await log.change([changed(item, { status: 'delivered', attempts: 1, made: attemptMade(1) })]);
    const before = await read.find('overtaken');
    await log.record([item]);

    assert.equal(before?.status, 'delivered');
    assert.deepEqual(await read.find('overtaken'), before);
    assert.equal((await read.ids({})).length, 1);
  },

  'records an id once, within one call and across calls': async (log, read) => {
    const first = enqueued('twin', { event: 'order.first' });
    const second = enqueued('twin', { event: 'order.second' });
    await log.record([first, second]);
    await log.record([second]);

    assert.deepEqual(await read.ids({}), ['twin']);
    assert.equal((await read.find('twin'))?.delivery.event, 'order.first');
  },

  'stores an attempt once that is reported twice': async (log) => {
    const item = enqueued('told-again');
    const change = changed(item, {
      attempts: 1,
      nextAttemptAt: NOW + 5_000,
      reason: 'dns',
      made: attemptMade(1, { reason: 'dns' }),
    });
    await log.change([change, change]);
    await log.change([change]);

    assert.equal((await log.attempts('told-again')).length, 1);
  },

  'stores the attempts of every round, in order': async (log, read) => {
    const item = enqueued('redelivered');
    const first = attemptMade(1, { at: NOW + 10, reason: 'dns' });
    const second = attemptMade(2, { at: NOW + 20, reason: 'dns' });
    const redelivered = attemptMade(1, { at: NOW + 30, statusCode: 204 });
    await log.change([
      changed(item, { status: 'dead', attempts: 2, reason: 'dns', at: NOW + 21, made: second }),
    ]);
    // An attempt that is reported late is in its place.
    await log.change([
      changed(item, {
        attempts: 1,
        reason: 'dns',
        at: NOW + 11,
        nextAttemptAt: 0,
        made: first,
      }),
    ]);
    await log.change([changed(item, { attempts: 0, nextAttemptAt: NOW + 25, at: NOW + 25 })]);
    const pending = await read.find('redelivered');
    await log.change([
      changed(item, { status: 'delivered', attempts: 1, at: NOW + 31, made: redelivered }),
    ]);

    assert.equal(pending?.status, 'pending');
    assert.equal(pending?.attempts, 0);
    assert.equal((await read.find('redelivered'))?.status, 'delivered');
    assert.deepEqual(await log.attempts('redelivered'), [first, second, redelivered]);
  },

  'ignores an older change that would return a dead delivery to pending': async (log, read) => {
    const item = enqueued('late');
    await log.change([changed(item, { status: 'dead', attempts: 2, reason: 'dns', at: NOW + 20 })]);
    await log.change([changed(item, { attempts: 1, nextAttemptAt: NOW + 15, at: NOW + 10 })]);

    const { status, attempts, updatedAt } = (await read.find('late'))!;
    assert.deepEqual([status, attempts, updatedAt], ['dead', 2, NOW + 20]);
  },

  'applies the later call of two changes with the same time': async (log, read) => {
    const item = enqueued('same-time');
    await log.change([
      changed(item, { status: 'dead', attempts: 2, reason: 'dns', at: NOW }),
      changed(item, { attempts: 0, nextAttemptAt: NOW, at: NOW }),
    ]);

    assert.equal((await read.find('same-time'))?.status, 'pending');
  },

  'keeps a delivery as delivered if another process attempted it too': async (log, read) => {
    const item = enqueued('run-twice');
    await log.change([changed(item, { status: 'delivered', attempts: 1, at: NOW + 10 })]);
    await log.change([changed(item, { attempts: 1, nextAttemptAt: NOW + 99, at: NOW + 20 })]);
    await log.change([changed(item, { status: 'dead', attempts: 2, reason: 'dns', at: NOW + 30 })]);

    const { status, updatedAt } = (await read.find('run-twice'))!;
    assert.deepEqual([status, updatedAt], ['delivered', NOW + 10]);
  },

  'lists newest first, and by id within the same time': async (log, read) => {
    const times: [string, number][] = [
      ['b', 1],
      ['a', 1],
      ['Z', 1],
      ['-', 1],
      ['_', 1],
      ['old', 0],
      ['new', 2],
    ];
    await log.record(times.map(([id, at]) => enqueued(id, { createdAt: NOW + at })));

    // By code units, whatever the collation of a database.
    assert.deepEqual(await read.ids({}), ['new', 'b', 'a', '_', 'Z', '-', 'old']);
  },

  'returns pages without gaps or repetitions, also across equal times': async (log, read) => {
    const ids = Array.from({ length: 12 }, (_, index) => `page-${String(index).padStart(2, '0')}`);
    await log.record(ids.map((id, index) => enqueued(id, { createdAt: NOW + (index >> 2) })));

    assert.deepEqual(await read.idsInPages({}, 5), ids.toReversed());
    const last = { createdAt: NOW, id: ids[0]! };
    assert.deepEqual(await log.list({}, { limit: 5, after: last }), []);
  },

  'filters by each member and by combinations': async (log, read) => {
    const other = { createdAt: NOW + 10 };
    const marked = enqueued('marked', {
      tenant: 'a',
      endpointId: 'erp',
      eventId: 'event-7',
      event: 'order.paid',
      createdAt: NOW + 5,
    });
    await log.record([enqueued('early', { createdAt: NOW }), marked, enqueued('late', other)]);
    await log.change([changed(marked, { status: 'dead', attempts: 1, reason: 'dns' })]);

    const asked = [
      { tenant: 'a' },
      { endpointId: 'erp' },
      { eventId: 'event-7' },
      { event: 'order.paid' },
      { status: 'dead' as const },
      { since: NOW + 5, until: NOW + 6 },
      { tenant: 'a', endpointId: 'erp', event: 'order.paid', status: 'dead' as const },
    ];
    for (const filter of asked) assert.deepEqual(await read.ids(filter), ['marked']);
    assert.deepEqual(await read.ids({ tenant: undefined, until: NOW + 5 }), ['early']);
    assert.deepEqual(await read.ids({ since: NOW + 5 }), ['late', 'marked']);
    assert.deepEqual(await read.ids({ status: 'pending' }), ['late', 'early']);
    assert.deepEqual(await read.ids({ tenant: 'a', endpointId: 'crm' }), []);
    // A name is neither a glob, nor a LIKE pattern, nor SQL.
    for (const event of ['order.*', 'order.%', 'order_paid', 'ORDER.PAID', "' OR ''='"]) {
      assert.deepEqual(await read.ids({ event }), []);
    }
  },

  'finds the pending deliveries that were due before a time': async (log, read) => {
    const [delivered, dead] = [enqueued('delivered'), enqueued('dead')];
    const later = enqueued('due later', {}, NOW + 10_000);
    await log.record([enqueued('overdue'), later, delivered, dead]);
    await log.change([
      changed(delivered, { status: 'delivered', attempts: 1 }),
      changed(dead, { status: 'dead', attempts: 1, reason: 'timeout' }),
    ]);

    assert.deepEqual(await read.ids({ dueBefore: NOW }), []);
    assert.deepEqual(await read.ids({ dueBefore: NOW + 1 }), ['overdue']);
    assert.deepEqual(await read.ids({ dueBefore: NOW + 1, status: 'pending' }), ['overdue']);
  },

  'counts by endpoint and tenant, with the earliest due time': async (log, read) => {
    const items = [
      enqueued('p1', {}, NOW + 300),
      enqueued('p2', {}, NOW + 200),
      enqueued('d1'),
      enqueued('x1', { tenant: 'a' }, NOW + 100),
      enqueued('e1', { endpointId: 'erp' }),
    ];
    await log.record(items);
    await log.change([
      changed(items[2]!, { status: 'delivered', attempts: 1 }),
      changed(items[4]!, { status: 'dead', attempts: 1, reason: 'dns' }),
      changed(items[0]!, { attempts: 1, nextAttemptAt: NOW + 400, reason: 'dns' }),
    ]);
    const crm = { endpointId: 'crm', pending: 2, delivered: 1, dead: 0, oldestDue: NOW + 200 };
    const ofTenant = { ...crm, tenant: 'a', pending: 1, delivered: 0, oldestDue: NOW + 100 };
    const erp = { endpointId: 'erp', pending: 0, delivered: 0, dead: 1 };

    assert.deepEqual(await read.counts({}), [crm, ofTenant, erp]);
    assert.deepEqual(await read.counts({ tenant: 'a' }), [ofTenant]);
    assert.deepEqual(await read.counts({ endpointId: 'erp', status: 'pending' }), [erp]);
    const unfinished = [crm, ofTenant, erp].map((one) => ({ ...one, delivered: 0 }));
    assert.deepEqual(await read.counts({ unfinished: true }), unfinished);
    assert.deepEqual(await read.counts({ endpointId: 'nobody' }), []);
  },

  'counts deliveries to URLs together': async (log, read) => {
    const { endpointId: _, ...rest } = enqueued('url-1').delivery;
    const first = { ...rest, url: 'https://a.example/' };
    const second = { ...rest, id: 'url-2', url: 'https://b.example/' };
    await log.record([first, second].map((delivery) => ({ delivery, notBefore: NOW })));

    assert.deepEqual(await read.counts({}), [
      { pending: 2, delivered: 0, dead: 0, oldestDue: NOW },
    ]);
  },

  'prunes old finished deliveries, and never pending ones': async (log, read) => {
    const at = (createdAt: number) => ({ createdAt });
    const old = enqueued('old-delivered', at(NOW));
    const oldDead = enqueued('old-dead', at(NOW));
    const edge = enqueued('edge', at(NOW + 10));
    await log.record([old, oldDead, enqueued('old-pending', at(NOW)), edge]);
    await log.change([
      changed(old, { status: 'delivered', attempts: 1, made: attemptMade(1) }),
      changed(oldDead, { status: 'dead', attempts: 1, reason: 'dns' }),
      changed(edge, { status: 'delivered', attempts: 1 }),
    ]);

    assert.equal(await log.prune(NOW + 10), 2);
    assert.deepEqual(await read.ids({}), ['edge', 'old-pending']);
    assert.equal(await log.find('old-delivered'), undefined);
    assert.deepEqual(await log.attempts('old-delivered'), []);
    assert.equal(await log.prune(NOW + 10), 0);
  },

  'prunes the deliveries of one tenant': async (log, read) => {
    const items = ['a', 'b'].map((tenant) => enqueued(`of-${tenant}`, { tenant, createdAt: NOW }));
    const ofNone = enqueued('of-none', { createdAt: NOW });
    await log.change(
      [...items, ofNone].map((item) => changed(item, { status: 'delivered', attempts: 1 })),
    );

    assert.equal(await log.prune(NOW + 1, { tenant: 'a' }), 1);
    assert.deepEqual(await read.ids({}), ['of-none', 'of-b']);
  },

  'stores 1,000 deliveries': async (log, read) => {
    const ids = Array.from(
      { length: 1_000 },
      (_, index) => `many-${String(index).padStart(3, '0')}`,
    );
    const items = ids.map((id, index) => enqueued(id, { createdAt: NOW + (index >> 4) }));
    await log.record(items);
    await log.change(
      items.map((item) =>
        changed(item, {
          attempts: 1,
          nextAttemptAt: NOW + 99,
          reason: 'http_500',
          made: attemptMade(1, { statusCode: 500, reason: 'http_500' }),
        }),
      ),
    );

    assert.deepEqual(await read.idsInPages({ endpointId: 'crm' }, 137), ids.toReversed());
    assert.equal((await read.counts({}))[0]?.pending, 1_000);
    assert.equal((await log.attempts(ids[500]!)).length, 1);
  },

  'loses no concurrent change': async (log, read) => {
    const item = enqueued('busy');
    const attempts = Array.from({ length: 10 }, (_, index) =>
      attemptMade(index + 1, { at: NOW + index, reason: 'http_500' }),
    );
    await Promise.all([
      log.record([item]),
      log.record([item, enqueued('neighbour')]),
      ...attempts.map((made) =>
        log.change([
          changed(item, {
            attempts: made.attempt,
            nextAttemptAt: NOW + 100 + made.attempt,
            reason: 'http_500',
            at: made.at,
            made,
          }),
        ]),
      ),
    ]);

    const { attempts: count, nextAttemptAt }: Partial<LoggedDelivery> = (await read.find('busy'))!;
    assert.deepEqual([count, nextAttemptAt], [10, NOW + 110]);
    assert.deepEqual(await log.attempts('busy'), attempts);
    assert.deepEqual(await read.ids({}), ['neighbour', 'busy']);
  },
};
