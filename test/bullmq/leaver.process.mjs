// Consumes from a Redis until it reads a line. It never calls exit(): it ends only if no handle is left open.
import { once } from 'node:events';
import { Queue } from 'bullmq';
import { BullMqQueue } from '../../dist/bullmq/index.js';
import { report, settings } from '../fixtures/parent-channel.mjs';

const connection = { host: '127.0.0.1', port: settings.port, enableOfflineQueue: false };
const jobs = new Queue('webhooks', { connection });
const away = new Promise((resolve) => jobs.on('error', resolve));
const queue = new BullMqQueue(jobs);
await queue.consume(async () => ({ outcome: { type: 'delivered' } }));
report('consumes');
await away;
report('alone');
await once(process.stdin, 'data');
process.stdin.destroy();
await queue.stop(Date.now() + 10_000);
// The application's own client, which waits for Redis when BullMQ closes it.
(await jobs.getBackend().client).disconnect();
report('stopped');
