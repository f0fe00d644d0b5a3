import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Queue } from 'bullmq';
import { BullMqQueue } from '../../lib/bullmq/bullmq.queue.js';
import { loadThroughOutage } from '../fixtures/outage-load.js';
import { OwnServer, ownRedis } from '../fixtures/own-server.js';

if (ownRedis('always') === undefined) {
  process.stderr.write('Skipped the tests that kill Redis: no redis-server is found.\n');
}

// The server's process is killed, not its machine: what `everysec` has written and not flushed survives that.
describe.each(['always', 'everysec'] as const)('a queue whose Redis, appendfsync %s,', (fsync) => {
  const program = ownRedis(fsync);
  const itKills = program === undefined ? it.skip : it;
  let server: OwnServer;
  let jobs: Queue;
  let queue: BullMqQueue;
  beforeAll(async () => {
    if (program === undefined) return;
    server = await OwnServer.start(program);
    jobs = new Queue('webhooks', { connection: { url: server.url, enableOfflineQueue: false } });
    jobs.on('error', () => {});
    await jobs.waitUntilReady();
    queue = new BullMqQueue(jobs, { lease: '5s' });
  });
  afterAll(async () => {
    if (program === undefined) return;
    await queue.stop(Date.now() + 5_000);
    await jobs.close();
    await server.remove();
  });

  itKills('is killed loses none of what it has acknowledged', async () => {
    const { acknowledged, refused, lost } = await loadThroughOutage(queue, server);

    expect(refused).toBeGreaterThan(0);
    expect(acknowledged).toBeGreaterThanOrEqual(300);
    expect(lost).toEqual([]);
  });
});
