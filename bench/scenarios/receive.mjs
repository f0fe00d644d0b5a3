import { Server } from '../receive/fleet.mjs';
import { dataOf } from '../event.mjs';
import { bodyOf, headRequests, postRequests } from '../receive/requests.mjs';
import { compareServers } from '../receive/rounds.mjs';
import { ADAPTERS, UNGUARDED, VARIANTS } from '../receive/settings.mjs';

/** Requests, and their number in a turn: enough to refill the CPU caches after a turn of another variant. */
const LOADS = {
  'HEAD, 300 B': { size: 800, make: (count, how) => headRequests(count, dataOf(0), how) },
  'HEAD, 6 kB': { size: 400, make: (count, how) => headRequests(count, dataOf(62), how) },
  'POST, 1 kB': { size: 400, ...postsOf(1_000) },
  'POST, 64 kB': { size: 100, ...postsOf(64_000) },
  'POST, 1 MB': { size: 12, ...postsOf(1_000_000) },
};

/** Loads and variants of the application with middleware. */
const WITH_MIDDLEWARE = {
  loads: ['HEAD, 300 B', 'POST, 1 kB'],
  variants: ['honest', 'floor', 'unguarded', 'mounted', 'endpoint'],
};

/** Variants that are compared for one load, since the others would show the same. */
const FOR_ONE_LOAD = { variants: ['beside', 'bare', 'traced'], load: 'HEAD, 300 B' };

/** Turns to warm a variant up. V8 optimises the long ones late, and the baseline, which has a turn in each pair, before others. */
const WARM_UP = { full: 60, quick: 20 };
/** A quick run ends within three minutes on two idle cores: with these loads, and turns of this share of their size. */
const QUICK = { loads: ['HEAD, 300 B', 'POST, 1 kB', 'POST, 64 kB'], share: 1 / 4 };

export async function run(options) {
  const results = [];
  for (const [adapter, { hasMiddleware }] of Object.entries(ADAPTERS)) {
    for (const [load, { size, make, hasBody }] of Object.entries(LOADS)) {
      if (hasMiddleware && !WITH_MIDDLEWARE.loads.includes(load)) continue;
      if (options.quick && (hasMiddleware || !QUICK.loads.includes(load))) continue;
      const title = `receive on ${adapter}, ${load}`;
      if (!title.includes(options.only ?? '')) continue;
      const runs = [];
      for (const [variant, name] of Object.entries(VARIANTS)) {
        const standard = variant === 'standardwebhooks';
        if (standard && !hasBody) continue;
        if (FOR_ONE_LOAD.variants.includes(variant) && load !== FOR_ONE_LOAD.load) continue;
        if (hasMiddleware && !WITH_MIDDLEWARE.variants.includes(variant)) continue;
        const server = await Server.start(adapter, variant);
        const count = Math.round(size * (options.quick ? QUICK.share : 1));
        const lot = () => make(count, { standard });
        const warmUp = () => make(size, { standard });
        // A variant that accepts a forged request or rejects a valid one fails the run.
        await server.cost(make(1, { standard }));
        if (!UNGUARDED.includes(variant))
          await server.cost(make(1, { standard, forged: true }), false);
        for (let turn = 0; turn < WARM_UP[options.quick ? 'quick' : 'full']; turn++)
          await server.cost(warmUp());
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
