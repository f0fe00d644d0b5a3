import { report } from '../harness.mjs';
import { Server } from '../receive/fleet.mjs';
import { bodyOf, dataOf, headRequests, postRequests } from '../receive/requests.mjs';
import { VARIANTS } from '../receive/settings.mjs';

/** What is sent, how much of it in a lot, and who can take it. */
const LOADS = {
  'HEAD, 300 B': { lot: 160, make: (count, options) => headRequests(count, dataOf(0), options) },
  'HEAD, 6 kB': { lot: 120, make: (count, options) => headRequests(count, dataOf(62), options) },
  'POST, 1 kB': { lot: 120, body: 1_000 },
  'POST, 64 kB': { lot: 40, body: 64_000 },
  'POST, 1 MB': { lot: 6, body: 1_000_000 },
};

const ROUNDS = { full: 31, quick: 9 };
const WARM_UP = { full: 2_000, quick: 600 };

export async function run(options) {
  const results = [];
  for (const adapter of ['express', 'fastify']) {
    for (const [name, load] of Object.entries(LOADS).slice(0, Number(process.env.N ?? 9))) {
      results.push(await receive(adapter, name, load, options));
    }
  }
  return results;
}

async function receive(adapter, name, load, { quick = false }) {
  const mode = quick ? 'quick' : 'full';
  const body = load.body === undefined ? undefined : bodyOf(load.body);
  const make = body === undefined ? load.make : (count, how) => postRequests(count, body, how);
  const runs = [];
  for (const [variant, label] of Object.entries(VARIANTS)) {
    const standard = variant === 'standardwebhooks';
    if (standard && body === undefined) continue;
    const server = await Server.start(adapter, variant);
    const requests = (count, forged = false) => make(count, { forged, standard });
    // A variant that takes what it must refuse, or refuses what it must take, is not counted.
    await server.cost(requests(1));
    if (variant !== 'unguarded') await server.cost(requests(1, true), false);
    const warm = Math.max(load.lot, Math.round((WARM_UP[mode] * load.lot) / LOADS['HEAD, 300 B'].lot));
    await server.cost(requests(warm));
    runs.push({ name: label, server, requests, pairs: [] });
  }
  const [base] = runs;
  for (let round = 0; round < ROUNDS[mode]; round++) {
    for (const variant of runs) {
      let [own, beside] = [0, 0];
      for (const turn of round % 2 === 0 ? 'bvvb' : 'vbbv') {
        const { server, requests } = turn === 'b' ? base : variant;
        const cost = await server.cost(requests(load.lot));
        if (turn === 'b') beside += cost;
        else own += cost;
      }
      variant.pairs.push({ own: own / 2, ratio: beside / own });
    }
  }
  for (const { server } of runs) server.stop();
  return report(`receive on ${adapter}, ${name}`, base.name, runs);
}
