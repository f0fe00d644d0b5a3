import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { replayStoreContract, TestClock } from 'nestjs-webhook-token/testing';
import {
  MemoryReplayStore,
  type MemoryReplayStoreOptions,
} from '../../lib/replay/memory-replay.store.js';
import type { ReplayClaim, ReplayReservation } from '../../lib/replay/replay-store.js';
import { NaiveReplayModel } from './naive-replay.model.js';

const SECOND = 1_000;
const HOUR = 3_600 * SECOND;

describe('MemoryReplayStore fulfils the contract of replay stores', () => {
  for (const { name, run } of replayStoreContract((clock) => new MemoryReplayStore({ clock }))) {
    it(name, run);
  }
});

function setup(options: MemoryReplayStoreOptions = {}) {
  const clock = new TestClock();
  const store = new MemoryReplayStore({ clock, ...options });
  const claim = (key: string, change: Partial<ReplayClaim> = {}): ReplayClaim => ({
    key,
    tokenKey: key,
    fingerprint: `content of ${key}`,
    replayUntil: clock.now() + 360 * SECOND,
    keepUntil: clock.now() + 96 * HOUR,
    lease: 30 * SECOND,
    issuer: 'https://issuer.example',
    ...change,
  });
  const reserve = async (
    key: string,
    change?: Partial<ReplayClaim>,
  ): Promise<ReplayReservation> => {
    const verdict = await store.reserve(claim(key, change));
    if (verdict.status !== 'reserved') throw new Error(`${key} is ${verdict.status}`);
    return verdict.reservation;
  };
  const handle = async (key: string, change?: Partial<ReplayClaim>): Promise<void> => {
    expect(await store.commit(await reserve(key, change))).toBe(true);
  };
  /** The status for a token that does not extend the entry. */
  const statusOf = async (key: string) =>
    (await store.reserve(claim(key, { replayUntil: 0, keepUntil: 0 }))).status;
  return { clock, store, claim, reserve, handle, statusOf };
}

const FULL = expect.objectContaining({ name: 'WebhookStoreError', code: 'store_full' });

describe('MemoryReplayStore', () => {
  it.each([
    ['at their end only', (i: number) => `${'a'.repeat(30)}${i}`],
    ['at their start only', (i: number) => `${i}${'z'.repeat(30)}`],
    ['in length only', (i: number) => 'x'.repeat(i)],
  ])('distinguishes thousands of keys that differ %s', async (_, keyOf) => {
    const { store, handle, reserve, statusOf } = setup();
    const keys = Array.from({ length: 2_000 }, (_one, i) => keyOf(i));
    const [kept, freed] = [keys.filter((_key, i) => i % 3), keys.filter((_key, i) => !(i % 3))];
    const reservations = await Promise.all(freed.map((key) => reserve(key)));
    for (const key of kept) await handle(key);
    for (const reservation of reservations) expect(await store.release(reservation)).toBe(true);

    expect(new Set(await Promise.all(kept.map(statusOf)))).toEqual(new Set(['done']));
    expect(new Set(await Promise.all(freed.map(statusOf)))).toEqual(new Set(['reserved']));
  });

  it('returns when a reservation expires', async () => {
    const { clock, store, claim, reserve } = setup();
    const stale = await reserve('a');
    const retryAt = clock.now() + 30 * SECOND;
    await clock.advance(30 * SECOND - 1);
    expect(await store.reserve(claim('a'))).toEqual({ status: 'in-progress', retryAt });

    await clock.advance(1);
    expect(await store.commit(stale)).toBe(false);
    expect((await store.reserve(claim('a'))).status).toBe('reserved');
  });

  it('forgets a handled event at keepUntil, and not before', async () => {
    const { clock, handle, statusOf } = setup();
    await handle('a');

    await clock.advance(96 * HOUR - 1);
    expect(await statusOf('a')).toBe('done');
    await clock.advance(1);
    expect(await statusOf('a')).toBe('reserved');
  });

  it('keeps an entry until replayUntil if keepUntil is earlier', async () => {
    const { clock, handle, statusOf } = setup();
    await handle('a', { keepUntil: 0 });

    await clock.advance(360 * SECOND - 1);
    expect(await statusOf('a')).toBe('done');
  });

  it('schedules no timer with its clock', async () => {
    const { clock, handle, reserve } = setup();
    await handle('a');
    await reserve('b');

    expect(clock.waiting).toBe(0);
  });

  it('removes expired entries, a few with each call', async () => {
    const { clock, store, handle, reserve } = setup();
    const handleSome = async (label: string, count: number): Promise<number[]> => {
      const sizes: number[] = [];
      for (let n = 0; n < count; n++) {
        await handle(`${label} ${n}`);
        sizes.push(store.size);
      }
      return sizes;
    };
    await handleSome('early', 500);
    for (let n = 0; n < 500; n++) await reserve(`crashed ${n}`);
    expect(store.size).toBe(1_000);

    await clock.advance(HOUR);
    const [afterOne] = await handleSome('later', 200);
    expect(afterOne).toBeGreaterThan(950);
    expect(store.size).toBe(700);

    await clock.advance(100 * HOUR);
    await handleSome('latest', 200);
    expect(store.size).toBe(200);
  });
});

describe('a full MemoryReplayStore', () => {
  it('refuses new events while every token could still be replayed', async () => {
    const { clock, store, claim, handle, statusOf } = setup({ maxEntries: 2 });
    await handle('a');
    await handle('b');

    await clock.advance(360 * SECOND - 1);
    await expect(store.reserve(claim('c'))).rejects.toThrow(FULL);
    expect([await statusOf('a'), await statusOf('b')]).toEqual(['done', 'done']);
  });

  it('refuses new events while every entry is being handled', async () => {
    const { clock, store, claim, reserve } = setup({ maxEntries: 2 });
    const reservations = [
      await reserve('a', { replayUntil: 0 }),
      await reserve('b', { replayUntil: 0 }),
    ];

    await clock.advance(30 * SECOND - 1);
    await expect(store.reserve(claim('c'))).rejects.toThrow(FULL);
    for (const reservation of reservations) expect(await store.commit(reservation)).toBe(true);
  });

  it('reuses the entry of a reservation whose lease has expired', async () => {
    const { clock, store, reserve } = setup({ maxEntries: 1 });
    const stale = await reserve('a');

    await clock.advance(30 * SECOND);
    await reserve('b');
    expect(await store.commit(stale)).toBe(false);
    expect(store.size).toBe(1);
  });

  it('evicts the oldest entry whose token has expired', async () => {
    const { clock, handle, statusOf } = setup({ maxEntries: 3 });
    await handle('needed', { replayUntil: clock.now() + HOUR });
    await handle('second', { keepUntil: clock.now() + 30 * HOUR });
    await handle('third', { keepUntil: clock.now() + 10 * HOUR });
    await clock.advance(360 * SECOND);

    await handle('d');
    expect(await statusOf('third')).toBe('done');
    await handle('e');
    expect([await statusOf('needed'), await statusOf('d')]).toEqual(['done', 'done']);
    await expect(statusOf('second')).rejects.toThrow(FULL);
  });

  it.each([
    ['immediately', 0],
    ['after the first token had expired', HOUR],
  ])(
    'does not evict an event whose repetition arrived %s and can be replayed',
    async (_, later) => {
      const { clock, store, claim, handle } = setup({ maxEntries: 2, maxEntriesPerIssuer: 1 });
      await handle('a');
      await clock.advance(later);
      await handle('other', { issuer: 'https://other.example' }); // removes expired entries
      const copy = claim('a', { replayUntil: clock.now() + 3 * HOUR });
      expect((await store.reserve(copy)).status).toBe('done');

      await clock.advance(3 * HOUR - 1);
      await expect(store.reserve(claim('b'))).rejects.toThrow(FULL);
      expect((await store.reserve(copy)).status).toBe('done');
      await clock.advance(1);
      await handle('b');
    },
  );

  it('does not evict an event whose repetition arrived while it was handled and can be replayed', async () => {
    const { clock, store, claim, reserve } = setup({ maxEntries: 1 });
    const reservation = await reserve('a');
    const copy = claim('a', { replayUntil: clock.now() + HOUR });
    expect((await store.reserve(copy)).status).toBe('in-progress');
    expect(await store.commit(reservation)).toBe(true);

    await clock.advance(HOUR - 1);
    await expect(store.reserve(claim('b'))).rejects.toThrow(FULL);
  });

  it('finds an entry to evict behind many entries that are still needed', async () => {
    const { clock, store, claim, handle, statusOf } = setup({ maxEntries: 41 });
    const names = Array.from({ length: 40 }, (_, n) => `copied ${n}`);
    for (const name of names) await handle(name, { keepUntil: clock.now() + 10 * HOUR });
    await handle('not copied');
    await clock.advance(HOUR);
    for (const name of names) expect(await statusOf(name)).toBe('done');
    const replayUntil = clock.now() + HOUR;
    for (const name of names) await store.reserve(claim(name, { replayUntil, keepUntil: 0 }));

    await handle('new');
    expect(new Set(await Promise.all(names.map(statusOf)))).toEqual(new Set(['done']));
  });

  it('does not extend an entry for a conflicting copy', async () => {
    const { clock, store, claim, handle } = setup({ maxEntries: 1 });
    await handle('a');
    const forged = { fingerprint: 'other content', replayUntil: clock.now() + HOUR };
    expect((await store.reserve(claim('a', forged))).status).toBe('conflict');

    await clock.advance(360 * SECOND);
    await handle('b');
  });

  it('evicts nothing for an event that it already has', async () => {
    const { clock, handle, statusOf } = setup({ maxEntries: 2 });
    await handle('a');
    await handle('b');
    await clock.advance(HOUR);

    expect([await statusOf('a'), await statusOf('b'), await statusOf('a')]).toEqual([
      'done',
      'done',
      'done',
    ]);
  });

  it('does not evict an entry that is valid again after the clock was set back', async () => {
    const { clock, store, claim, handle } = setup({ maxEntries: 2 });
    await handle('a');
    await handle('b');
    const start = clock.now();
    await clock.advance(HOUR);
    await handle('c'); // replaces an entry that can be evicted
    clock.set(start);

    await expect(store.reserve(claim('d'))).rejects.toThrow(FULL);
  });

  it('throws an error that names the remedy and no id', async () => {
    const { store, claim, handle } = setup({ maxEntries: 1 });
    await handle('secret-id-1');

    await expect(store.reserve(claim('secret-id-2'))).rejects.toThrow(
      /^(?!.*secret-id).*raise maxEntries, or use a shared store/,
    );
  });

  it('limits each issuer to its share', async () => {
    const { clock, store, claim, handle, statusOf } = setup({
      maxEntries: 10,
      maxEntriesPerIssuer: 2,
    });
    const other = { issuer: 'https://other.example' };
    await handle('other 1', other);
    await handle('other 2', other);
    await handle('a');
    await handle('b');
    await expect(store.reserve(claim('c'))).rejects.toThrow(
      /"https:\/\/issuer\.example".*raise maxEntriesPerIssuer/,
    );

    await clock.advance(360 * SECOND);
    await handle('c');
    expect(store.size).toBe(4);
    expect(await statusOf('b')).toBe('done');
    for (const key of ['other 1', 'other 2']) {
      expect(await store.reserve(claim(key, other))).toEqual({ status: 'done' });
    }
  });

  it('returns the share of removed entries to their issuer', async () => {
    const { store, reserve } = setup({ maxEntries: 10, maxEntriesPerIssuer: 1 });

    for (let n = 0; n < 20; n++) expect(await store.release(await reserve(`${n}`))).toBe(true);
    expect(store.size).toBe(0);
  });

  it.each([
    0,
    -1,
    1.5,
    Number.NaN,
    Number.POSITIVE_INFINITY,
    2 ** 24 + 1,
    '10' as unknown as number,
  ])('refuses the bound %p', (bound) => {
    expect(() => new MemoryReplayStore({ maxEntries: bound, maxEntriesPerIssuer: bound })).toThrow(
      expect.objectContaining({
        code: 'invalid_configuration',
        problems: [
          expect.objectContaining({ path: 'MemoryReplayStore.maxEntries' }),
          expect.objectContaining({ path: 'MemoryReplayStore.maxEntriesPerIssuer' }),
        ],
      }),
    );
  });
});

describe('MemoryReplayStore and a naive model', () => {
  // Few keys, so that they collide.
  const span = fc.constantFrom(0, 1, 500, 1_000, 30_000, 70_000, 200_000, 4 * HOUR);
  const claims = fc.record({
    key: fc.constantFrom('k1', 'k2', 'k3', 'k4', 'k5', 'k6', 'k7'),
    token: fc.constantFrom(undefined, undefined, 't1', 't2', 't3', 't4', 'k1', 'k2'),
    fingerprint: fc.constantFrom('f1', 'f1', 'f1', 'f2'),
    issuer: fc.constantFrom('i1', 'i2'),
    replayIn: span,
    keepFor: span,
    lease: fc.constantFrom(1, 1_000, 30_000),
  });
  const steps = fc.oneof(
    { weight: 5, arbitrary: fc.record({ do: fc.constant('reserve' as const), claim: claims }) },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constantFrom(
          'commit' as const,
          'commit' as const,
          'release' as const,
          'extend' as const,
        ),
        which: fc.nat(),
      }),
    },
    { weight: 2, arbitrary: fc.record({ do: fc.constant('advance' as const), ms: span }) },
  );

  it.each([
    [{ maxEntries: 100 }, 100],
    [{ maxEntries: 3 }, 3],
    [{ maxEntries: 4, maxEntriesPerIssuer: 2 }, 2],
  ])('give the same answers with %j', async (options, perIssuer) => {
    await fc.assert(
      fc.asyncProperty(fc.array(steps, { maxLength: 120 }), async (sequence) => {
        const { clock, store } = setup(options);
        const model = new NaiveReplayModel(options.maxEntries, perIssuer);
        const reservations: ReplayReservation[] = [];
        for (const step of sequence) {
          const now = clock.now();
          if (step.do === 'advance') clock.set(now + step.ms);
          else if (step.do === 'reserve') {
            const { token, replayIn, keepFor, ...rest } = step.claim;
            const replayUntil = now + replayIn;
            const keepUntil = replayUntil + keepFor;
            const claim = { ...rest, tokenKey: token ?? rest.key, replayUntil, keepUntil };
            const [status, owner] = await attempt(store, claim, reservations);
            expect(status).toBe(model.reserve(claim, owner, now, status));
          } else if (reservations.length > 0) {
            const reservation = reservations[step.which % reservations.length]!;
            expect(await store[step.do](reservation)).toBe(
              model[step.do](reservation.claim, reservation.owner, now),
            );
          }
          model.forgetEnded(clock.now());
          expect(store.size).toBeGreaterThanOrEqual(model.leastSize(clock.now()));
          expect(store.size).toBeLessThanOrEqual(options.maxEntries);
        }
      }),
      { numRuns: 400 },
    );
  });
});

async function attempt(
  store: MemoryReplayStore,
  claim: ReplayClaim,
  reservations: ReplayReservation[],
): Promise<[status: string, owner: string]> {
  try {
    const verdict = await store.reserve(claim);
    if (verdict.status !== 'reserved') return [verdict.status, ''];
    reservations.push(verdict.reservation);
    return ['reserved', verdict.reservation.owner];
  } catch (error) {
    return [(error as { code: string }).code, ''];
  }
}
