import { describe, expect, it } from '@jest/globals';
import { TestClock } from 'nestjs-webhook-token/testing';
import type { ReplayReservation } from 'nestjs-webhook-token/ports';
import { MemoryReplayStore } from 'nestjs-webhook-token';
import { LeaseKeeper } from '../../lib/replay/lease-keeper.js';

const LEASE = 30_000;
const WAKE = LEASE / 4;

type Answer = 'extends' | 'fails' | 'hangs';

/** A store whose next extensions a test answers. */
class ExtensionsStore extends MemoryReplayStore {
  answer: Answer = 'extends';
  readonly asked: string[] = [];
  private recoveries: (() => void)[] = [];

  override async extend(reservation: ReplayReservation): Promise<boolean> {
    this.asked.push(reservation.claim.key);
    if (this.answer === 'fails') throw new Error('the connection was lost');
    if (this.answer === 'hangs') {
      await new Promise<void>((resolve) => this.recoveries.push(resolve));
    }
    return super.extend(reservation);
  }

  recover(): void {
    this.answer = 'extends';
    for (const resume of this.recoveries.splice(0)) resume();
  }
}

function setup() {
  const clock = new TestClock();
  const store = new ExtensionsStore({ clock });
  const keeper = new LeaseKeeper(store, clock, LEASE);
  const hold = async (key: string): Promise<ReplayReservation> => {
    const verdict = await store.reserve({
      key,
      tokenKey: key,
      fingerprint: '',
      replayUntil: clock.now() + 10 * LEASE,
      keepUntil: clock.now() + 10 * LEASE,
      lease: LEASE,
      issuer: 'https://issuer.example',
    });
    if (verdict.status !== 'reserved') throw new Error(`${key} is ${verdict.status}`);
    keeper.hold(verdict.reservation);
    return verdict.reservation;
  };
  return { clock, store, keeper, hold };
}

describe('LeaseKeeper', () => {
  it('keeps a lease for as long as it is held', async () => {
    const { clock, store, keeper, hold } = setup();
    const reservation = await hold('a');

    await clock.advance(5 * LEASE);
    keeper.drop(reservation);
    expect(await store.commit(reservation)).toBe(true);
    await clock.advance(WAKE);
    expect(clock.waiting).toBe(0);
  });

  it('outlives two failures of the store', async () => {
    const { clock, store, hold } = setup();
    const reservation = await hold('a');
    store.answer = 'fails';
    for (let ms = 0; ms < LEASE && store.asked.length < 2; ms += 500) await clock.advance(500);
    expect(store.asked).toEqual(['a', 'a']);
    store.answer = 'extends';
    await clock.advance(LEASE);

    expect(await store.commit(reservation)).toBe(true);
  });

  it('has at most one pending extension for each lease, however long the store hangs', async () => {
    const { clock, store, hold } = setup();
    await hold('a');
    store.answer = 'hangs';
    await clock.advance(WAKE);
    await hold('b');
    await clock.advance(20 * WAKE);

    expect(store.asked).toEqual(['a', 'b']);
  });

  it('continues to extend once the store has answered', async () => {
    const { clock, store, hold } = setup();
    await hold('a');
    store.answer = 'hangs';
    await clock.advance(2 * WAKE);
    store.recover();

    await clock.advance(2 * WAKE);
    expect(store.asked).toEqual(['a', 'a', 'a']);
  });
});
