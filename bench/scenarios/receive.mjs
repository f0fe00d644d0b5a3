import { Server } from '../receive/fleet.mjs';
import { dataOf } from '../event.mjs';
import { bodyOf, headRequests, postRequests } from '../receive/requests.mjs';
import { compareServers } from '../receive/rounds.mjs';
import { VARIANTS } from '../receive/settings.mjs';

/** Requests, and their number in a turn: enough to refill the CPU caches after a turn of another variant. */
const LOADS = {
  'HEAD, 300 B': { size: 800, make: (count, how) => headRequests(count, dataOf(0), how) },
  'HEAD, 6 kB': { size: 400, make: (count, how) => headRequests(count, dataOf(62), how) },
  'POST, 1 kB': { size: 400, ...postsOf(1_000) },
  'POST, 64 kB': { size: 100, ...postsOf(64_000) },
  'POST, 1 MB': { size: 12, ...postsOf(1_000_000) },
};

/** Turns to warm a variant up. */
const WARM_UP = { full: 20, quick: 10 };

export async function run(options) {
  const results = [];
  for (const adapter of ['express', 'fastify']) {
    for (const [load, { size, make, hasBody }] of Object.entries(LOADS)) {
      const title = `receive on ${adapter}, ${load}`;
      if (!title.includes(options.only ?? '')) continue;
      const runs = [];
      for (const [variant, name] of Object.entries(VARIANTS)) {
        const standard = variant === 'standardwebhooks';
        if (standard && !hasBody) continue;
        const server = await Server.start(adapter, variant);
        const lot = () => make(size, { standard });
        // A variant that accepts a forged request or rejects a valid one fails the run.
        await server.cost(make(1, { standard }));
        if (variant !== 'unguarded') await server.cost(make(1, { standard, forged: true }), false);
        for (let turn = 0; turn < WARM_UP[options.quick ? 'quick' : 'full']; turn++) {
          await server.cost(lot());
        }
        runs.push({ name, server, lot });
      }
      results.push(await compareServers(title, runs, options));
    }
  }
  return results;
}

function postsOf(bytes) {
  const body = bodyOf(bytes);
  return { hasBody: true, make: (count, how) => postRequests(count, body, how) };
}
