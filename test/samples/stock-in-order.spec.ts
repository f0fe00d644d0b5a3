import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { SampleProcess } from './sample-process.js';

describe('sample 08-stock-in-order', () => {
  let directory: string;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'webhooks-sample-'));
  });
  afterAll(async () => rm(directory, { recursive: true, force: true }));

  it('gets every stock level in order from a warehouse, although it fails every third request', async () => {
    const sample = SampleProcess.start('08-stock-in-order', { STORAGE_DIRECTORY: directory });

    expect(await sample.exitCode()).toBe(0);
    const levelsOf = (sku: string): number[] =>
      sample.lines.flatMap((line) => {
        const level = new RegExp(`^${sku}: (\\d+) left$`).exec(line)?.[1];
        return level === undefined ? [] : [Number(level)];
      });
    const all = [8, 7, 6, 5, 4, 3, 2, 1, 0];
    expect(['hat', 'scarf', 'glove'].map(levelsOf)).toEqual([all, all, all]);
    expect(sample.lines.at(-1)).toBe('40 requests, 13 failed, 0 levels out of order');
  });
});
