// Another process of an application: deletes finished deliveries up to the time of each message, and answers with their number.
import { openQueue } from '../../test/fixtures/durable-queues.mjs';

const queue = await openQueue('postgres', JSON.parse(process.argv[2]));
async function answer(before) {
  process.send(before === null ? await queue.stop(Date.now()) : await queue.prune(before));
  if (before === null) process.disconnect();
}
process.on('message', (before) => void answer(before));
process.send('ready');
