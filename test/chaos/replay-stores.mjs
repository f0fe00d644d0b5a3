import { PostgresReplayStore } from '../../dist/postgres/index.js';
import { RedisReplayStore } from '../../dist/redis/index.js';
import { ReplayStore } from '../../dist/ports/index.js';
import { replayClaim } from '../../build/lib/receiver/webhook-event.js';

/** Longer than a statement takes on a busy machine. */
const TIMEOUT = '30s';

/** Stores nothing, to show the outcome without replay protection. */
class NoReplayStore extends ReplayStore {
  scope = 'shared';
  reserve = (claim) => ({ status: 'reserved', reservation: { claim, owner: 'none' } });
  extend = () => true;
  commit = () => true;
  release = () => true;
}

/** Gives a handler the reservation of its event, to commit it together with the handler's effects. */
class JoinedReplayStore extends PostgresReplayStore {
  reservations = new Map();

  async reserve(claim) {
    const verdict = await super.reserve(claim);
    if (verdict.status === 'reserved') this.reservations.set(claim.key, verdict.reservation);
    return verdict;
  }

  reservationOf(event) {
    const { key } = replayClaim(event, undefined, {
      clockTolerance: 0,
      replayWindow: 0,
      replayLease: 0,
      clock: { now: () => 0 },
    });
    const reservation = this.reservations.get(key);
    this.reservations.delete(key);
    return reservation;
  }
}

/**
 * Opens a replay store, with a function that records an effect in the way that suits the store.
 *
 * @returns `{ store, record(event) }`
 */
export async function openReplayStore(kind, effects, { redis, schema }) {
  switch (kind) {
    case 'postgres': {
      const store = new JoinedReplayStore(effects.client, { schema, timeout: TIMEOUT });
      const commit = async (tx, event) => {
        if (event.commit === undefined) return store.commitWith(tx, store.reservationOf(event));
        await event.commit(tx);
        return true;
      };
      const record = (event) => effects.addWith(event.id, (tx) => commit(tx, event));
      return { store, record };
    }
    case 'pglite': {
      const store = new PostgresReplayStore(effects.client, { schema, timeout: TIMEOUT });
      return { store, record: ({ id }) => effects.add(id) };
    }
    case 'redis': {
      const { Redis } = await import('ioredis');
      const client = new Redis(redis);
      const store = new RedisReplayStore(client, { prefix: schema, timeout: TIMEOUT });
      return { store, record: ({ id }) => effects.add(id) };
    }
    case 'none':
      return { store: new NoReplayStore(), record: ({ id }) => effects.add(id) };
    default:
      throw new Error(`Unknown replay store ${kind}.`);
  }
}
