import { report } from '../harness.mjs';

const ROUNDS = { full: 31, quick: 9 };

/**
 * Lets servers take turns with the first of them, ABBA, and reports what a request costs.
 *
 * @param runs `{ name, server, lot, accepted }`: `lot()` makes the requests of a turn
 * @param options.what of what `server.cost()` gives microseconds
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
