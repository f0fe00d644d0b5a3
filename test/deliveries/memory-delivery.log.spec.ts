import { describe, expect, it } from '@jest/globals';
import type { DeliveryChange } from '../../lib/deliveries/delivery-log.js';
import { MemoryDeliveryLog } from '../../lib/deliveries/memory-delivery.log.js';
import type { OutgoingDelivery } from '../../lib/queue/webhook-delivery.interface.js';
import { deliveryLogContract } from '../../lib/testing/delivery-log.contract.js';

describe('MemoryDeliveryLog', () => {
  for (const { name, run } of deliveryLogContract(() => new MemoryDeliveryLog())) it(name, run);

  it('evicts the oldest delivered deliveries beyond maxFinished, and no dead ones', async () => {
    const log = new MemoryDeliveryLog({ maxFinished: 2 });
    await log.change([changed('lost', 'dead')]);
    await log.change(['a', 'b', 'c'].map((id) => changed(id, 'delivered')));

    expect(await idsOf(log)).toEqual(['c', 'b', 'lost']);
  });

  it('evicts the oldest dead deliveries beyond maxFinished', async () => {
    const log = new MemoryDeliveryLog({ maxFinished: 2 });
    await log.change(['a', 'b', 'c'].map((id) => changed(id, 'dead')));

    expect(await idsOf(log)).toEqual(['c', 'b']);
  });

  it('evicts delivered deliveries first, then dead ones, at maxBytes', async () => {
    const log = new MemoryDeliveryLog({ maxBytes: 250 });
    await log.change([changed('dead', 'dead', 100), changed('done', 'delivered', 100)]);
    await log.change([changed('more', 'dead', 100)]);
    const afterOne = await idsOf(log);
    await log.change([changed('still-more', 'dead', 200)]);

    expect(afterOne).toEqual(['more', 'dead']);
    expect(await idsOf(log)).toEqual(['still-more']);
  });

  it('counts answers towards maxBytes', async () => {
    const log = new MemoryDeliveryLog({ maxBytes: 1_000 });
    const made = {
      attempt: 1,
      at: 0,
      method: 'POST',
      durationMs: 1,
      answer: 'ä'.repeat(400),
    } as const;
    await log.change([{ ...changed('first', 'dead'), made }]);
    await log.change([{ ...changed('second', 'dead'), made }]);

    expect(await idsOf(log)).toEqual(['second']);
  });

  it('keeps the latest pending deliveries up to maxPending', async () => {
    const log = new MemoryDeliveryLog({ maxPending: 2 });
    const items = ['a', 'b', 'c'].map((id) => ({ delivery: delivery(id), notBefore: 0 }));
    await log.record(items);

    expect(await idsOf(log)).toEqual(['c', 'b']);
  });

  it('keeps every pending delivery with maxPending Infinity, whatever its size', async () => {
    const log = new MemoryDeliveryLog({ maxPending: Infinity, maxBytes: 10 });
    const items = ['a', 'b', 'c'].map((id) => ({ delivery: delivery(id, 100), notBefore: 0 }));
    await log.record(items);
    const pending = await idsOf(log);
    await log.change([changed('a', 'delivered', 100)]);

    expect(pending).toEqual(['c', 'b', 'a']);
    expect(await idsOf(log)).toEqual(['c', 'b']);
  });

  it('keeps the last 100 attempts of a delivery', async () => {
    const log = new MemoryDeliveryLog();
    for (let attempt = 1; attempt <= 120; attempt++) {
      const made = { attempt, at: attempt, method: 'HEAD', durationMs: 0 } as const;
      await log.change([{ ...changed('again', 'pending'), made }]);
    }
    const attempts = await log.attempts('again');

    expect(attempts).toHaveLength(100);
    expect(attempts[0]?.attempt).toBe(21);
  });

  it.each([
    ['maxFinished', 0],
    ['maxPending', -1],
    ['maxBytes', Infinity],
    ['maxBytes', 1.5],
  ])('refuses %s of %s', (name, value) => {
    expect(() => new MemoryDeliveryLog({ [name]: value })).toThrow(
      expect.objectContaining({ code: 'invalid_configuration' }),
    );
  });
});

let created = 0;

function delivery(id: string, bytes = 0): OutgoingDelivery {
  const payload = {
    kind: 'bytes',
    bytes: Buffer.alloc(bytes),
    contentType: 'application/octet-stream',
  } as const;
  return { id, eventId: id, event: 'order.created', payload, createdAt: created++ };
}

function changed(id: string, status: DeliveryChange['status'], bytes = 0): DeliveryChange {
  return { delivery: delivery(id, bytes), status, attempts: 1, at: created };
}

async function idsOf(log: MemoryDeliveryLog): Promise<string[]> {
  const found = await log.list({}, { limit: 100 });
  return found.map(({ delivery }) => delivery.id);
}
