import { describe, expect, it } from '@jest/globals';
import { TestClock } from 'nestjs-webhook-token/testing';
import { LostReservations } from '../../lib/replay/lost-reservations.js';
import type { ReplayReservation } from '../../lib/replay/replay-store.js';
import { newClaim } from '../fixtures/racing-replicas.js';

describe('a reservation whose answer was lost', () => {
  function setUp() {
    const clock = new TestClock();
    const store = { isAway: true, tries: 0, released: [] as string[] };
    const lost = new LostReservations(async ({ owner }: ReplayReservation) => {
      store.tries++;
      if (store.isAway) throw new Error('away');
      store.released.push(owner);
    }, clock);
    const add = (owner: string): void => lost.add({ claim: newClaim({ lease: 30_000 }), owner });
    return { clock, store, add };
  }

  it('is released within a second after the store is back', async () => {
    const { clock, store, add } = setUp();
    add('a');
    add('b');
    await clock.advance(10_000);
    expect(store.tries).toBeLessThanOrEqual(10);
    store.isAway = false;
    await clock.advance(1_000);

    expect(store.released).toEqual(['a', 'b']);
  });

  it('is forgotten when its lease has expired', async () => {
    const { clock, store, add } = setUp();
    add('a');
    await clock.advance(31_000);
    const { tries } = store;
    store.isAway = false;
    await clock.advance(60_000);

    expect(store).toMatchObject({ released: [], tries });
  });
});
