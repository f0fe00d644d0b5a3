// Records deliveries and attempts them until it is killed, by itself after its `last` line. Prints "acknowledged ID" and
// "delivered ID".
import { openQueue } from '../fixtures/durable-queues.mjs';
import { onCommand, report, settings } from '../fixtures/parent-channel.mjs';

/** Deliveries that are recorded at once, so that a backlog builds up. */
const WRITERS = 20;
const { engine, place, first, count, last } = settings;
let lines = 0;
const queue = await openQueue(engine, place);

onCommand();
await queue.consume(async ({ id }) => {
  // A kill should interrupt some attempts.
  await new Promise((resolve) => setTimeout(resolve, 3));
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
    await record(`delivery-${number}`, `endpoint-${number % 7}`);
  }
}

async function record(id, endpointId) {
  const delivery = {
    id,
    eventId: id,
    event: 'order.created',
    endpointId,
    payload: { kind: 'json', bytes: Buffer.from('{}'), contentType: 'application/json' },
    createdAt: Date.now(),
  };
  await queue.enqueue([{ delivery, notBefore: Date.now() }]);
  note('acknowledged', id);
}
