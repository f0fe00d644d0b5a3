import { dataOf } from '../event.mjs';
import { Cannon } from '../receive/cannon.mjs';
import { Server } from '../receive/fleet.mjs';
import { authorizations } from '../receive/requests.mjs';
import { compareServers } from '../receive/rounds.mjs';
import { VARIANTS } from '../receive/settings.mjs';

const COMPARED = ['unguarded', 'floor', 'mounted', 'endpoint', 'jose'];
/** Requests in a turn. */
const LOT = 600;
const WARM_UP = { full: 15, quick: 8 };

/**
 * Cross-checks `receive` with another client and metric: the requests per second of autocannon. The client occupies a core of its
 * own and is slower than the fastest servers, so the ratios are closer together than those of CPU time.
 */
export async function run(options) {
  const results = [];
  for (const adapter of ['express', 'fastify']) {
    const title = `throughput on ${adapter}, HEAD, 300 B, by autocannon`;
    if (!title.includes(options.only ?? '')) continue;
    const runs = [];
    for (const variant of COMPARED) {
      const server = new Cannon(await Server.start(adapter, variant));
      const lot = () => authorizations(LOT, dataOf(0));
      for (let turn = 0; turn < WARM_UP[options.quick ? 'quick' : 'full']; turn++) {
        await server.cost(lot());
      }
      runs.push({ name: VARIANTS[variant], server, lot });
    }
    results.push(await compareServers(title, runs, { ...options, what: 'between answers' }));
  }
  return results;
}
