import { report } from '../harness.mjs';

const ROUNDS = { full: 31, quick: 7 };

/**
 * Alternates each server with the first one (ABBA), and reports the cost of a request.
 *
 * @param runs `{ name, server, lot, accepted }`: `lot()` creates the requests of a turn
 * @param options.what the kind of time that `server.cost()` measures, in microseconds
 */
export async function compareServers(title, runs, { quick = false, what = 'CPU' } = {}) {
  const [base] = runs;
  for (const run of runs) run.pairs = [];
  for (let round = 0; round < ROUNDS[quick ? 'quick' : 'full']; round++) {
    for (const variant of runs) {
      let [own, beside] = [0, 0];
      for (const turn of round % 2 === 0 ? 'bvvb' : 'vbbv') {
        const { server, lot, accepted } = turn === 'b' ? base : variant;
        const cost = await server.cost(lot(), accepted);
        if (turn === 'b') beside += cost;
        else own += cost;
      }
      variant.pairs.push({ own: own / 2, ratio: beside / own });
    }
  }
  for (const { server } of runs) server.stop();
  return report(title, base.name, runs, what);
}
