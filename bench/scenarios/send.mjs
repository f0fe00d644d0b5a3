import { compareServers } from '../receive/rounds.mjs';
import { Sender, Sink } from '../send/fleet.mjs';
import { CONCURRENCY, LOADS, VARIANTS } from '../send/settings.mjs';

/** Requests of a turn. */
const SIZE = 2_000;
/** Turns of a variant before any of them counts. */
const WARM_UP = { full: 8, quick: 5 };

/** What it costs the sender to sign an event and bring it to a receiver that answers 204 at once. */
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
