import { describe, expect, it } from '@jest/globals';
import { TestClock } from 'nestjs-webhook-token/testing';
import {
  type InboxEntry,
  type InboxFilter,
  type InboxSettlement,
  InboxStore,
} from '../../lib/inbox/inbox-store.js';
import { InboxWriter } from '../../lib/inbox/inbox.writer.js';
import { MemoryInboxStore } from '../../lib/inbox/memory-inbox.store.js';
import { Gate } from '../fixtures/gate.js';

/** Counts the calls of a store, and fails or waits on demand. */
class ScriptedInboxStore extends InboxStore {
  override readonly durable = false;
  readonly batches: number[] = [];
  readonly settled: number[] = [];
  failure: Error | undefined;
  /** While set, `record` waits for it to open. */
  gate: Gate | undefined;

  constructor(private readonly store: MemoryInboxStore) {
    super();
  }

  override async record(entries: readonly InboxEntry[]): Promise<void> {
    if (this.failure !== undefined) throw this.failure;
    await this.gate?.pass();
    this.batches.push(entries.length);
    await this.store.record(entries);
  }

  override async settle(settlements: readonly InboxSettlement[]): Promise<readonly string[]> {
    if (this.failure !== undefined) throw this.failure;
    this.settled.push(settlements.length);
    return this.store.settle(settlements);
  }

  override find(id: string) {
    return this.store.find(id);
  }

  override list(filter: InboxFilter, page: { readonly limit: number }) {
    return this.store.list(filter, page);
  }

  override erase(filter: InboxFilter) {
    return this.store.erase(filter);
  }

  override counts() {
    return this.store.counts();
  }
}

function setUp() {
  const clock = new TestClock(0);
  const store = new ScriptedInboxStore(
    new MemoryInboxStore({ maxAccepted: 10_000, maxRefused: 10_000 }),
  );
  const failures: unknown[] = [];
  const writer = new InboxWriter(store, clock, (error) => failures.push(error));
  return { clock, store, failures, writer };
}

function entry(id: number, members: Partial<InboxEntry> = {}): () => InboxEntry {
  return () => ({
    id: String(id).padStart(6, '0'),
    at: 0,
    outcome: 'handled',
    status: 204,
    method: 'POST',
    path: '/',
    authenticated: true,
    ...members,
  });
}

describe('InboxWriter', () => {
  it('writes what arrives within a quarter of a second as one batch', async () => {
    const { clock, store, writer } = setUp();
    writer.add(entry(1));
    await clock.advance(249);
    writer.add(entry(2));
    expect(store.batches).toEqual([]);
    await clock.advance(1);
    await writer.flush();

    expect(store.batches).toEqual([2]);
  });

  it('records a share of the refused requests, and counts the others', async () => {
    const { clock, store, writer } = setUp();
    let id = 0;
    const flood = (): void => {
      for (let i = 0; i < 1_000; i++) {
        if (writer.takesRepeated('refused'))
          writer.addRepeated('refused', entry(id++, { outcome: 'refused' }));
      }
    };
    flood();
    await clock.advance(250);
    await writer.flush();
    flood();
    await writer.flush();

    expect((await store.counts()).refused).toBe(50);
    expect(writer.dropped).toBe(1_950);
  });

  it('records accepted requests during a flood of refused ones', async () => {
    const { store, writer } = setUp();
    for (let i = 0; i < 1_000; i++) {
      if (writer.takesRepeated('refused'))
        writer.addRepeated('refused', entry(i, { outcome: 'refused' }));
      if (i % 100 === 0) writer.add(entry(10_000 + i));
    }
    await writer.flush();

    expect(await store.counts()).toEqual({ accepted: 10, refused: 25 });
  });

  it('settles an event whose entry is in the same batch or a later one', async () => {
    const { store, writer } = setUp();
    for (let i = 0; i < 700; i++) {
      writer.add(entry(i, { outcome: 'queued', deliveryId: `d${i}` }));
    }
    writer.settle({ deliveryId: 'd699', outcome: 'dead', runs: 3 });
    await writer.flush();

    expect(store.batches).toEqual([500, 200]);
    expect(await store.find('000699')).toMatchObject({ outcome: 'dead', runs: 3 });
  });

  it('repeats a settlement whose entry another process has not written yet', async () => {
    const { clock, store, writer } = setUp();
    writer.settle({ deliveryId: 'd1', outcome: 'queued', runs: 1 });
    writer.settle({ deliveryId: 'd2', outcome: 'dead', runs: 1 });
    await clock.advance(250);
    const other = [entry(1, { deliveryId: 'd1' })(), entry(2, { deliveryId: 'd2' })()];
    await store.record(other);
    await store.settle([{ deliveryId: 'd1', outcome: 'handled', runs: 2 }]);
    await clock.advance(999);
    expect(await store.find('000002')).toMatchObject({ outcome: 'handled' });
    await clock.advance(1);

    expect(await store.find('000001')).toMatchObject({ outcome: 'handled', runs: 2 });
    expect(await store.find('000002')).toMatchObject({ outcome: 'dead', runs: 1 });
    expect(clock.waiting).toBe(0);
  });

  it('repeats a settlement four times at most, and never delays a later write for it', async () => {
    const { clock, store, writer } = setUp();
    for (let i = 0; i < 2_000; i++) {
      writer.settle({ deliveryId: `d${i}`, outcome: 'handled', runs: 1 });
    }
    await clock.advance(250);
    writer.add(entry(1));
    await clock.advance(250);
    expect(store.batches).toEqual([1]);
    await clock.advance(120_000);

    expect(store.settled).toEqual([2_000, 1_000, 1_000, 1_000, 1_000]);
    expect(clock.waiting).toBe(0);
  });

  it('repeats a settlement when it closes', async () => {
    const { clock, store, writer } = setUp();
    writer.settle({ deliveryId: 'd1', outcome: 'handled', runs: 1 });
    await clock.advance(250);
    await store.record([entry(1, { outcome: 'queued', deliveryId: 'd1' })()]);
    await writer.close();

    expect(await store.find('000001')).toMatchObject({ outcome: 'handled', runs: 1 });
    expect(clock.waiting).toBe(0);
  });

  it('writes a refused request that arrives during a slow write', async () => {
    const { clock, store, writer } = setUp();
    store.gate = new Gate();
    writer.add(entry(1));
    await clock.advance(250);
    await store.gate.reached;
    writer.addRepeated('refused', entry(2, { outcome: 'refused' }));
    await clock.advance(250);
    store.gate.open();
    await clock.advance(250);

    expect(await store.counts()).toEqual({ accepted: 1, refused: 1 });
  });

  it('repeats a failed write, less and less often, and reports an outage once', async () => {
    const { clock, store, failures, writer } = setUp();
    store.failure = new Error('down');
    writer.add(entry(1));
    await clock.advance(250);
    await clock.advance(1_000);
    await clock.advance(2_000);
    store.failure = undefined;
    writer.add(entry(2));
    await clock.advance(3_999);
    expect(store.batches).toEqual([]);
    await clock.advance(1);
    await writer.flush();

    expect((await store.counts()).accepted).toBe(2);
    expect(failures).toEqual([new Error('down')]);
  });

  it('drops what exceeds its buffer while the store fails, and counts it', async () => {
    const { store, writer } = setUp();
    store.failure = new Error('down');
    for (let i = 0; i < 5_000; i++) writer.add(entry(i));
    await writer.flush();
    for (let i = 5_000; i < 6_000; i++) writer.add(entry(i));
    store.failure = undefined;
    await writer.flush();

    expect((await store.counts()).accepted + writer.dropped).toBe(6_000);
    expect(writer.dropped).toBeGreaterThan(0);
    expect(writer.dropped).toBeLessThan(1_000);
  });

  it('bounds the headers and payloads that wait for the store in bytes, and writes them in small batches', async () => {
    const { store, writer } = setUp();
    const size = 60_000;
    store.failure = new Error('down');
    let kept = 0;
    for (let i = 0; i < 1_000; i++) {
      if (writer.takesContent(size)) {
        const payload = { contentType: 'text/plain', bytes: Buffer.alloc(size) };
        writer.add(entry(i, { payload }), size);
        kept++;
      } else writer.add(entry(i));
    }
    await writer.flush();
    store.failure = undefined;
    await writer.flush();

    expect(kept * size).toBeGreaterThan(7_000_000);
    expect(kept * size).toBeLessThan(8.5 * 1024 * 1024);
    expect((await store.counts()).accepted).toBe(1_000);
    expect(Math.max(...store.batches.slice(0, 8))).toBeLessThanOrEqual(17);
    expect(writer.takesContent(size)).toBe(true);
    expect(writer.dropped).toBe(0);
  });

  it('bounds duplicates apart from other accepted requests', async () => {
    const { store, writer } = setUp();
    for (let i = 0; i < 1_000; i++) {
      if (writer.takesRepeated('duplicate'))
        writer.addRepeated('duplicate', entry(i, { outcome: 'duplicate' }));
      if (i % 10 === 0) writer.add(entry(10_000 + i));
    }
    await writer.flush();

    expect((await store.counts()).accepted).toBe(125);
    expect(writer.dropped).toBe(975);
  });

  it('drops an entry that cannot be completed', async () => {
    const { store, writer } = setUp();
    writer.add(() => {
      throw new Error('unreadable');
    });
    writer.add(entry(1));
    await writer.flush();

    expect((await store.counts()).accepted).toBe(1);
    expect(writer.dropped).toBe(1);
  });
});
