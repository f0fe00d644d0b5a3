// Records deliveries and attempts them until it is killed, by itself after its `last` line. Prints "acknowledged ID" and
// "delivered ID". Every second delivery has an ordering key; each of their attempts appends its endpoint, key and number to
// the ledger, in the order in which they start in all processes.
import { appendFileSync } from 'node:fs';
import { openQueue } from '../fixtures/durable-queues.mjs';
import { onCommand, report, settings } from '../fixtures/parent-channel.mjs';

/** Deliveries that are recorded at once, so that a backlog builds up. */
const WRITERS = 20;
/** Ordering keys of each endpoint. */
const KEYS = 3;
/** The share of attempts that fail. */
const FAILING = 0.05;
const { engine, place, first, count, last, ledger } = settings;
let lines = 0;
const queue = await openQueue(engine, place);

onCommand();
await queue.consume(async ({ id, endpointId, orderingKey, sequence }) => {
  if (sequence !== undefined) appendFileSync(ledger, `${endpointId}/${orderingKey} ${sequence}\n`);
  // A kill should interrupt some attempts.
  await new Promise((resolve) => setTimeout(resolve, 3));
  if (Math.random() < FAILING) {
    return { outcome: { type: 'retry', at: Date.now() + 20, reason: 'http_503' } };
  }
  note('delivered', id);
  return { outcome: { type: 'delivered' } };
});
report('ready');
const numbers = Array.from({ length: count }, (_, index) => first + index);
await Promise.all(Array.from({ length: WRITERS }, recordAll));

/** The parent process would kill too late if it is slow to read: this process could have delivered everything by then. */
function note(word, id) {
  report(word, id);
  if (++lines === last) process.kill(process.pid, 'SIGKILL');
}

async function recordAll() {
  for (let number = numbers.shift(); number !== undefined; number = numbers.shift()) {
    const orderingKey = number % 2 === 0 ? `key-${number % KEYS}` : undefined;
    await record(`delivery-${number}`, `endpoint-${number % 7}`, orderingKey);
  }
}

async function record(id, endpointId, orderingKey) {
  const delivery = {
    id,
    eventId: id,
    event: 'order.created',
    endpointId,
    ...(orderingKey !== undefined && { orderingKey }),
    payload: { kind: 'json', bytes: Buffer.from('{}'), contentType: 'application/json' },
    createdAt: Date.now(),
  };
  await queue.enqueue([{ delivery, notBefore: Date.now() }]);
  note('acknowledged', id);
}
