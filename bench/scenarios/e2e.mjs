import { fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { answers, SERVICE_URLS } from '../../test/fixtures/service-urls.mjs';
import { median } from '../deliveries.mjs';
import { CALLERS, CLIENTS, CONCURRENCY } from '../e2e/settings.mjs';
import { Server } from '../receive/fleet.mjs';
import { compareServers } from '../receive/rounds.mjs';
import { PATH } from '../receive/settings.mjs';

const SENDER = fileURLToPath(new URL('../e2e/sender.mjs', import.meta.url));
const NEEDS = { memory: undefined, postgres: 'PostgreSQL', bullmq: 'Redis' };
/** The variants, the baseline first, with the server of scenario `receive` that receives from each. */
const VARIANTS = {
  ...Object.fromEntries(Object.keys(CLIENTS).map((name) => [name, 'honest'])),
  library: 'mounted',
};
/** Events in a turn; turns to warm a variant up, since V8 optimises long paths late; and events published while everything is idle. */
const EVENTS = { full: 1_000, quick: 300 };
const WARM_UP = 20;
const IDLE = { full: 100, quick: 20 };

/** publish → queue → HTTP → handler on Fastify, the sender and the receiver in separate processes, against code written by hand. */
export async function run(options) {
  const mode = options.quick ? 'quick' : 'full';
  const results = [];
  for (const [engine, service] of Object.entries(NEEDS)) {
    const title = `end to end, ${engine}, ${CALLERS} callers, ${CONCURRENCY} at once`;
    if (!title.includes(options.only ?? '')) continue;
    if (service !== undefined && !(await answers(SERVICE_URLS[service]))) {
      console.log(`  skipped ${engine}: ${service} does not answer at ${SERVICE_URLS[service]}`);
      continue;
    }
    const runs = [];
    for (const [name, receiver] of Object.entries(VARIANTS)) {
      const server = await Pipeline.start(name, engine, receiver);
      for (let turn = 0; turn < WARM_UP; turn++) await server.cost(EVENTS[mode]);
      runs.push({ name, server, lot: () => EVENTS[mode], lags: [] });
    }
    for (let event = 0; event < IDLE[mode]; event++) {
      for (const { server, lags } of runs) lags.push(await server.lag());
    }
    for (const { server } of runs) server.cpu.length = 0;
    results.push(await compareServers(title, runs, { ...options, what: 'between deliveries' }));
    results.push(
      print(`CPU of a delivery, µs, ${engine}`, runs, ({ server }) => median(server.cpu)),
      print(`idle, publish → handler, ms, ${engine}`, runs, ({ lags }) => median(lags)),
    );
  }
  return results;
}

function print(title, runs, valueOf) {
  const rows = runs.map((run) => ({ name: run.name, value: valueOf(run) }));
  console.log(`\n${title}`);
  for (const { name, value } of rows) console.log(`  ${name.padEnd(40)} ${value.toFixed(1)}`);
  return { title, rows };
}

/** A sender and a receiver. */
class Pipeline {
  /** CPU microseconds of a delivery in both processes, by turn. */
  cpu = [];

  static async start(name, engine, variant) {
    const receiver = await Server.start('fastify', variant);
    const url = `http://127.0.0.1:${receiver.client.port}${PATH}`;
    const sender = fork(SENDER, [name, engine, url], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    await once(sender, 'message');
    return new Pipeline(sender, receiver);
  }

  constructor(sender, receiver) {
    this.sender = sender;
    this.receiver = receiver;
  }

  /** @returns wall microseconds per delivery */
  async cost(count) {
    const before = await this.receiver.usage();
    const { wall, cpu } = await this.#publish(count);
    const after = await this.receiver.usage();
    if (after.handled - before.handled !== count) {
      throw new Error(`The handler ran ${after.handled - before.handled} times, not ${count}.`);
    }
    this.cpu.push((cpu * 1_000 + after.cpu - before.cpu) / count);
    return (wall * 1_000) / count;
  }

  /** @returns milliseconds from an idle publish to its handler */
  async lag() {
    // At any point of a poll interval.
    await sleep(20 + 80 * Math.random());
    const { start } = await this.#publish(1);
    const { handledAt } = await this.receiver.usage();
    return handledAt - start;
  }

  stop() {
    this.sender.disconnect();
    this.receiver.stop();
  }

  async #publish(count) {
    const answer = once(this.sender, 'message');
    this.sender.send(count);
    const [result] = await answer;
    return result;
  }
}
