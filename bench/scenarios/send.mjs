import { compareServers } from '../receive/rounds.mjs';
import { Sender, Sink } from '../send/fleet.mjs';
import { CONCURRENCY, LOADS, VARIANTS } from '../send/settings.mjs';

/** Requests in a turn. */
const SIZE = 2_000;
/** Turns to warm a variant up. */
const WARM_UP = { full: 8, quick: 5 };

/** The sender's cost of signing an event and sending it to a receiver that answers 204 immediately. */
export async function run(options) {
  const results = [];
  for (const load of Object.keys(LOADS)) {
    const title = `send, ${load}, ${CONCURRENCY} at once`;
    if (!title.includes(options.only ?? '')) continue;
    const sink = await Sink.start();
    const runs = [];
    for (const [variant, name] of Object.entries(VARIANTS)) {
      const server = await Sender.start(variant, sink, load);
      for (let turn = 0; turn < WARM_UP[options.quick ? 'quick' : 'full']; turn++) {
        await server.cost(SIZE);
      }
      runs.push({ name, server, lot: () => SIZE });
    }
    results.push(await compareServers(title, runs, options));
    sink.stop();
  }
  return results;
}
