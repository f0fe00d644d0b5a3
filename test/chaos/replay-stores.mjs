import { PostgresReplayStore } from '../../dist/postgres/index.js';
import { RedisReplayStore } from '../../dist/redis/index.js';
import { ReplayStore } from '../../dist/ports/index.js';
import { replayClaim } from '../../dist/receiver/replay/replay-identity.js';

/** Remembers nothing: what happens without protection. */
class NoReplayStore extends ReplayStore {
  scope = 'shared';
  reserve = (claim) => ({ status: 'reserved', reservation: { claim, owner: 'none' } });
  extend = () => true;
  commit = () => true;
  release = () => true;
}

/** Hands a handler the reservation of its event, so that it can be committed with the handler's effects. */
class JoinedReplayStore extends PostgresReplayStore {
  reservations = new Map();

  async reserve(claim) {
    const verdict = await super.reserve(claim);
    if (verdict.status === 'reserved') this.reservations.set(claim.key, verdict.reservation);
    return verdict;
  }

  reservationOf(event) {
    const { key } = replayClaim(event, { clockTolerance: 0, window: 0, lease: 0, now: 0 });
    const reservation = this.reservations.get(key);
    this.reservations.delete(key);
    return reservation;
  }
}

/**
 * The replay stores of the receivers, and how an effect is recorded with each.
 *
 * @returns `{ store, record(event) }`
 */
export async function openReplayStore(kind, effects, { redis, schema }) {
  switch (kind) {
    case 'postgres': {
      const store = new JoinedReplayStore(effects.client, { schema });
      const commit = async (tx, event) => {
        if (event.commit === undefined) return store.commitWith(tx, store.reservationOf(event));
        await event.commit(tx);
        return true;
      };
      const record = (event) => effects.addWith(event.id, (tx) => commit(tx, event));
      return { store, record };
    }
    case 'pglite': {
      const store = new PostgresReplayStore(effects.client, { schema });
      return { store, record: ({ id }) => effects.add(id) };
    }
    case 'redis': {
      const { Redis } = await import('ioredis');
      const client = new Redis(redis);
      const store = new RedisReplayStore(client, { prefix: schema });
      return { store, record: ({ id }) => effects.add(id) };
    }
    case 'none':
      return { store: new NoReplayStore(), record: ({ id }) => effects.add(id) };
    default:
      throw new Error(`There is no replay store ${kind}.`);
  }
}
