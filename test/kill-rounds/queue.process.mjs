// A publisher's process for the kill rounds: records deliveries and attempts them until it is killed.
// Says which deliveries are acknowledged, and which are delivered.
import { openQueue } from '../fixtures/durable-queues.mjs';
import { listen, say, settings } from '../fixtures/told-process.mjs';

const { engine, place, first, count } = settings;
const queue = await openQueue(engine, { concurrency: 20, ...place });

listen();
await queue.consume(async ({ id }) => {
  // Long enough that a kill finds some of them at work.
  await new Promise((resolve) => setTimeout(resolve, 3));
  say('delivered', id);
  return { type: 'delivered' };
});
say('ready');
for (let number = first; number < first + count; number++) {
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
