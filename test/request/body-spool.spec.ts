import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { BodySpool } from '../../lib/request/body-spool.js';

describe('BodySpool', () => {
  let directory: string;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'webhook-spool-'));
  });
  afterEach(() => rm(directory, { recursive: true }));

  it('gives the space of a file that is being removed to the next one', async () => {
    const spool = new BodySpool({ above: 0, directory, maxBytes: 10 });
    const [first, second, third] = [
      await spool.create(),
      await spool.create(),
      await spool.create(),
    ];
    await first.reserve(10);
    first.remove();
    await second.reserve(10);

    await expect(third.reserve(1)).rejects.toMatchObject({ code: 'spool_unavailable' });
    second.remove();
    third.remove();
    const last = await spool.create();
    await last.reserve(10);
    last.remove();
  });
});
