import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { freePort } from '../fixtures/free-port.js';
import { send, type Answer } from '../fixtures/http-client.js';
import { SampleProcess } from './sample-process.js';

describe('sample 03-full-stack', () => {
  let folder: string;
  let sample: SampleProcess;
  let shop: string;
  let warehouse: string;
  const authorization = `Basic ${Buffer.from('admin:sample').toString('base64')}`;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'webhook-full-stack-'));
    const [port, warehousePort] = [await freePort(), await freePort()];
    [shop, warehouse] = [`http://127.0.0.1:${port}`, `http://127.0.0.1:${warehousePort}`];
    sample = SampleProcess.start('03-full-stack', {
      PORT: `${port}`,
      WAREHOUSE_PORT: `${warehousePort}`,
      STORAGE_DIRECTORY: folder,
    });
    await sample.printed(/The warehouse:/);
  });
  afterAll(async () => {
    await sample.stop();
    await rm(folder, { recursive: true, force: true });
  });

  const order = (customer: string): Promise<Answer> =>
    send(shop, { path: '/orders', body: JSON.stringify({ customer, total: 4_200 }) });
  const console = (path: string): Promise<Answer> =>
    send(shop, { method: 'GET', path: `/webhooks/console/${path}`, headers: { authorization } });

  /** Asks until the answer fits. */
  const until = async (ask: () => Promise<Answer>, fits: RegExp): Promise<void> => {
    while (!fits.test((await ask()).text));
  };

  it('ships an order, and answers with an event of the warehouse', async () => {
    await order('Ada');

    await until(() => send(shop, { method: 'GET', path: '/orders' }), /"shipped"/);
    await until(() => console('api/inbox'), /parcel\.shipped/);
  });

  it('shows the deliveries that a closed warehouse has refused', async () => {
    await send(warehouse, { path: '/close' });
    await order('Grace');

    await until(() => console('api/deliveries?status=pending'), /http_503/);
  });

  it('protects the console', async () => {
    const { status } = await send(shop, { method: 'GET', path: '/webhooks/console/' });

    expect(status).toBe(401);
  });
});
