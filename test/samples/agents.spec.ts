import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { freePort } from '../fixtures/free-port.js';
import { SampleProcess } from './sample-process.js';

describe('sample 09-agents', () => {
  let sample: SampleProcess;
  beforeAll(async () => {
    const [PORT, CLIENT_PORT] = [await freePort(), await freePort()].map(String);
    sample = SampleProcess.start('09-agents', { PORT: PORT!, CLIENT_PORT: CLIENT_PORT! });
  });
  afterAll(() => sample.stop());

  it.each(['submitted', 'working', 'completed'])(
    'receives the update %s that the server of the official SDK pushes',
    async (state) => {
      const line = new RegExp(`The agent pushes task\\.${state}, body signed: false`);
      await sample.printed(line);

      expect(sample.lines.filter((one) => line.test(one))).toHaveLength(1);
    },
  );

  it('rejects an update without a token', async () => {
    await sample.printed(/Without a token: 401 missing_token/);
  });
});
