// A publisher's process for the kill rounds: records deliveries and attempts them until it is killed.
//   node queue-process.mjs server <url> <schema> <first number> <how many>
//   node queue-process.mjs embedded <directory> - <first number> <how many>
// Prints a line for each delivery that is acknowledged, and for each that is delivered.
import { EmbeddedDeliveryQueue, PgBossDeliveryQueue } from '../../dist/postgres/index.js';

const [engine, place, schema, first, count] = process.argv.slice(2);
const options = { concurrency: 20, lease: '10s', pollInterval: '100ms' };
const queue =
  engine === 'server'
    ? new PgBossDeliveryQueue({ ...options, connectionString: place, schema })
    : new EmbeddedDeliveryQueue({ ...options, directory: place });
const say = (word, id) => process.stdout.write(`${word} ${id}\n`);

// The queue's own timers keep no process alive.
setInterval(() => {}, 60_000);
await queue.consume(async ({ id }) => {
  // Long enough that a kill finds some of them at work.
  await new Promise((resolve) => setTimeout(resolve, 3));
  say('delivered', id);
  return { type: 'delivered' };
});
say('ready', engine);
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
