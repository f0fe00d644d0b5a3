import { Server } from '../receive/fleet.mjs';
import { bodyOf, postRequests } from '../receive/requests.mjs';
import { compareServers } from '../receive/rounds.mjs';
import { VARIANTS } from '../receive/settings.mjs';

const COMPARED = ['floor', 'jose', 'standardwebhooks', 'mounted', 'bare', 'endpoint'];
/** Requests in a turn: enough to refill the CPU caches after a turn of another variant. */
const LOADS = {
  '64 kB': { size: { full: 200, quick: 60 }, bytes: 64_000 },
  '1 MB': { size: { full: 20, quick: 8 }, bytes: 1_000_000 },
};
/** Requests to warm up: V8 optimises the code of a server only after some thousand refusals. */
const WARM_UP = { full: 4_000, quick: 1_500 };
const LOT = 100;

/** Cost of rejecting a forged request. A guard behind the body parser has already read and parsed the body. */
export async function run(options) {
  const mode = options.quick ? 'quick' : 'full';
  const results = [];
  const small = bodyOf(LOADS['64 kB'].bytes);
  for (const adapter of ['express', 'fastify']) {
    for (const [load, { size, bytes }] of Object.entries(LOADS)) {
      const title = `refuse forged POSTs on ${adapter}, ${load}`;
      if (!title.includes(options.only ?? '')) continue;
      const body = bodyOf(bytes);
      const runs = [];
      for (const variant of COMPARED) {
        const standard = variant === 'standardwebhooks';
        const server = await Server.start(adapter, variant);
        const lot = () => postRequests(size[mode], body, { standard, forged: true });
        await server.cost(postRequests(1, body, { standard }));
        const forged = postRequests(LOT, small, { standard, forged: true });
        for (let sent = 0; sent < WARM_UP[mode]; sent += LOT) {
          await server.cost(forged, false);
        }
        await server.cost(lot(), false);
        runs.push({ name: VARIANTS[variant], server, lot, accepted: false });
      }
      results.push(await compareServers(title, runs, options));
    }
  }
  return results;
}
