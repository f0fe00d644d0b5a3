import { fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { dropJobs } from '../../test/fixtures/drop-jobs.mjs';
import { openQueue } from '../../test/fixtures/durable-queues.mjs';
import { answers, SERVICE_URLS } from '../../test/fixtures/service-urls.mjs';
import { dueDelivery } from '../deliveries.mjs';
import { report } from '../harness.mjs';

const TITLE = 'events published and delivered beside a process that deletes old deliveries';
const BASELINE = 'nothing is deleted';
/** Old deliveries of a round, in days of their own, and rounds. */
const OLD = { full: 20_000, quick: 5_000 };
const ROUNDS = { full: 15, quick: 5 };
const DAY = 86_400_000;
/** Events that are published or delivered at once. */
const AT_ONCE = 100;

/** Throughput of a PostgreSQL queue while another process prunes it without a pause. It is compared with turns before and after. */
export async function run({ quick = false, only = '' } = {}) {
  if (!TITLE.includes(only)) return [];
  const postgres = SERVICE_URLS.PostgreSQL;
  if (!(await answers(postgres))) {
    console.log(`  skipped retention: PostgreSQL does not answer at ${postgres}`);
    return [];
  }
  const mode = quick ? 'quick' : 'full';
  const name = `bench_${randomBytes(6).toString('hex')}`;
  const place = { postgres, name };
  const queue = await openQueue('postgres', { ...place, keepDelivered: '3650d' });
  const pruner = fork(fileURLToPath(new URL('../retention/pruner.mjs', import.meta.url)), [
    JSON.stringify({ ...place, keepDelivered: '3650d' }),
  ]);
  try {
    await once(pruner, 'message');
    const traffic = new Traffic(queue);
    await traffic.deliver();
    await traffic.addOld(ROUNDS[mode], OLD[mode]);
    traffic.start();
    const pairs = { base: [], pruned: [] };
    let length = 2_000;
    for (let round = 0; round < ROUNDS[mode]; round++) {
      const before = await traffic.during(sleep(length));
      const start = performance.now();
      const own = await traffic.during(prune(pruner, oldUntil(ROUNDS[mode] - round)));
      length = performance.now() - start;
      const after = await traffic.during(sleep(length));
      // A prune may slow down what follows it, so each side of the baseline comes first in turn.
      const [one, other] = round % 2 === 0 ? [before, after] : [after, before];
      pairs.base.push({ own: one, ratio: other / one });
      pairs.pruned.push({ own, ratio: (before + after) / 2 / own });
    }
    await traffic.stop();
    const runs = [
      { name: BASELINE, pairs: pairs.base },
      { name: `${OLD[mode]} deliveries are deleted`, pairs: pairs.pruned },
    ];
    return [report(TITLE, BASELINE, runs, 'an event')];
  } finally {
    pruner.send(null);
    await once(pruner, 'exit');
    await queue.stop(Date.now() + 5_000);
    await dropJobs('postgres', { postgres, name });
  }
}

/** Events that are published, a number of them at once, each when an earlier one was delivered. */
class Traffic {
  #delivered = new Map();
  #count = 0;
  #published = 0;
  #loops;
  #hasStopped = false;

  constructor(queue) {
    this.queue = queue;
  }

  async deliver() {
    await this.queue.consume(async ({ id }) => {
      this.#delivered.get(id)?.();
      return { outcome: { type: 'delivered' } };
    });
  }

  start() {
    this.#loops = Array.from({ length: AT_ONCE }, (_, endpoint) => this.#publish(endpoint));
  }

  async stop() {
    this.#hasStopped = true;
    await Promise.all(this.#loops);
  }

  /** Records deliveries of earlier days, and waits until all are delivered. */
  async addOld(days, count) {
    for (let day = 1; day <= days; day++) {
      for (let from = 0; from < count; from += 1_000) {
        const items = Array.from({ length: 1_000 }, (_, at) => {
          const item = dueDelivery(`old-${day}-${from + at}`, `endpoint-${at % AT_ONCE}`);
          return { ...item, delivery: { ...item.delivery, createdAt: oldUntil(day) - 1 } };
        });
        const all = items.map(({ delivery }) => this.#whenDelivered(delivery.id));
        await this.queue.enqueue(items);
        await Promise.all(all);
      }
    }
  }

  /** @returns microseconds of an event while something is under way */
  async during(work) {
    const [start, before] = [performance.now(), this.#count];
    await work;
    return ((performance.now() - start) * 1_000) / (this.#count - before);
  }

  async #publish(endpoint) {
    while (!this.#hasStopped) {
      const item = dueDelivery(`delivery-${this.#published++}`, `endpoint-${endpoint}`);
      const delivered = this.#whenDelivered(item.delivery.id);
      await this.queue.enqueue([item]);
      await delivered;
      this.#count++;
    }
  }

  #whenDelivered(id) {
    return new Promise((resolve) => {
      this.#delivered.set(id, () => {
        this.#delivered.delete(id);
        resolve();
      });
    });
  }
}

/** The time before which the old deliveries of a day, and of those before it, were recorded. */
const NOW = Date.now();
function oldUntil(day) {
  return NOW - day * DAY;
}

async function prune(pruner, before) {
  pruner.send(before);
  const [deleted] = await once(pruner, 'message');
  if (deleted === 0) throw new Error('Nothing was deleted.');
}
