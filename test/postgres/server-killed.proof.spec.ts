import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { PostgresQueue } from '../../lib/postgres/postgres.queue.js';
import { loadThroughOutage } from '../fixtures/outage-load.js';
import { OwnServer, ownPostgres } from '../fixtures/own-server.js';

const program = ownPostgres();
if (program === undefined) {
  process.stderr.write('Skipped the tests that kill PostgreSQL: no initdb is found.\n');
}

(program === undefined ? describe.skip : describe)('a queue whose PostgreSQL is killed', () => {
  let server: OwnServer;
  let queue: PostgresQueue;
  beforeAll(async () => {
    server = await OwnServer.start(program!);
    queue = new PostgresQueue({
      connectionString: server.url,
      lease: '10s',
      pollInterval: '100ms',
    });
  });
  afterAll(async () => {
    await queue.stop(Date.now() + 5_000);
    await server.remove();
  });

  it('loses no acknowledged delivery, and continues when the server has restarted', async () => {
    const { acknowledged, refused, lost } = await loadThroughOutage(queue, server);

    expect(refused).toBeGreaterThan(0);
    expect(acknowledged).toBeGreaterThanOrEqual(300);
    expect(lost).toEqual([]);
  });
});
