// Attempts the deliveries of an endpoint with limits, until it is killed or told to stop. Its attempts are requests to `url`, so that
// the receiver counts them.
import { openQueue } from '../fixtures/durable-queues.mjs';
import { onCommand, report, settings } from '../fixtures/parent-channel.mjs';

const { engine, place, url } = settings;
const queue = await openQueue(engine, place);
onCommand(() => void queue.stop(Date.now() + 5_000).then(() => process.exit(0)));
await queue.consume(async ({ id }) => {
  const { status } = await fetch(url, { method: 'POST', body: id });
  if (status === 204) return { outcome: { type: 'delivered' } };
  return { outcome: { type: 'retry', at: Date.now() + 20, reason: `http_${status}` } };
});
report('ready');
