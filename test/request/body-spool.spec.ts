import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { BodySpool } from '../../lib/request/body-spool.js';

describe('BodySpool', () => {
  const { signal } = new AbortController();
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
    await first.reserve(10, signal);
    first.remove();
    await second.reserve(10, signal);

    await expect(third.reserve(1, signal)).rejects.toMatchObject({ code: 'spool_unavailable' });
    second.remove();
    third.remove();
    const last = await spool.create();
    await last.reserve(10, signal);
    last.remove();
  });

  it('does not wait for the removal of a body that itself waits for space', async () => {
    const spool = new BodySpool({ above: 0, directory, maxBytes: 10 });
    const [kept, first, second] = [
      await spool.create(),
      await spool.create(),
      await spool.create(),
    ];
    await kept.reserve(5, signal);
    await first.reserve(5, signal);
    first.remove();
    const gone = new AbortController();
    const waiting = second.reserve(8, gone.signal);
    spool.removing(waiting.catch(() => second.remove()));
    gone.abort();

    await expect(waiting).rejects.toMatchObject({ code: 'spool_unavailable' });
    const last = await spool.create();
    await last.reserve(5, signal);
    for (const body of [kept, last]) body.remove();
  });
});
