// A publisher's process for the kill rounds: records deliveries and attempts them until it is killed.
//   node queue-process.mjs <redis url> <queue> <first number> <how many>
// Prints a line for each delivery that is acknowledged, and for each that is delivered.
import { Queue } from 'bullmq';
import { BullMqDeliveryQueue } from '../../dist/bullmq/index.js';

const [url, name, first, count] = process.argv.slice(2);
const queue = new BullMqDeliveryQueue(new Queue(name, { connection: { url } }), {
  concurrency: 20,
  lease: '5s',
});
const say = (word, id) => process.stdout.write(`${word} ${id}\n`);

await queue.consume(async ({ id }) => {
  // Long enough that a kill finds some of them at work.
  await new Promise((resolve) => setTimeout(resolve, 3));
  say('delivered', id);
  return { type: 'delivered' };
});
say('ready', name);
for (let number = Number(first); number < Number(first) + Number(count); number++) {
  const id = `delivery-${number}`;
  const delivery = {
    id,
    eventId: id,
    event: 'order.created',
    endpointId: `endpoint-${number % 7}`,
    payload: { kind: 'json', bytes: Buffer.from('{}'), contentType: 'application/json' },
    createdAt: Date.now(),
  };
  await queue.enqueue([{ delivery, notBefore: Date.now() }]);
  say('acknowledged', id);
}
