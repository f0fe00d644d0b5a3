import { compareServers } from '../receive/rounds.mjs';
import { Sender, Sink } from '../send/fleet.mjs';
import { CONCURRENCY, LOADS, VARIANTS } from '../send/settings.mjs';

/** Requests in a turn. */
const SIZE = { full: 2_000, quick: 300 };
/** Turns to warm a variant up: V8 optimises long paths only after some ten thousand requests. */
const WARM_UP = { full: 12, quick: 40 };

/** The sender's cost of signing an event and sending it to a receiver that answers 204 immediately. */
export async function run(options) {
  const mode = options.quick ? 'quick' : 'full';
  const size = SIZE[mode];
  const results = [];
  for (const [load, { variants = Object.keys(VARIANTS) }] of Object.entries(LOADS)) {
    const title = `send, ${load}, ${CONCURRENCY} at once`;
    if (!title.includes(options.only ?? '')) continue;
    const sink = await Sink.start(load);
    const runs = [];
    for (const variant of variants) {
      const server = await Sender.start(variant, sink, load);
      for (let turn = 0; turn < WARM_UP[mode]; turn++) await server.cost(size);
      runs.push({ name: VARIANTS[variant], server, lot: () => size });
    }
    results.push(await compareServers(title, runs, options));
    sink.stop();
  }
  return results;
}
