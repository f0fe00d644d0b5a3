import { PostgresReplayStore } from '../../dist/postgres/index.js';
import { RedisReplayStore } from '../../dist/redis/index.js';
import { ReplayStore } from '../../dist/ports/index.js';

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

/**
 * Opens a replay store, with a function that records an effect in the way that suits the store.
 *
 * @returns `{ store, record(event) }`
 */
export async function openReplayStore(kind, effects, { redis, schema }) {
  switch (kind) {
    case 'postgres': {
      const store = new PostgresReplayStore(effects.client, { schema, timeout: TIMEOUT });
      const record = (event) => effects.addWith(event.id, (tx) => event.commit(tx));
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
