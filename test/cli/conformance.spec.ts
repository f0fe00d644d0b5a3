import type { INestApplication } from '@nestjs/common';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { adapters } from '../fixtures/adapters.js';
import { PATH, startApp } from '../fixtures/receiver-app.js';
import { ids, report } from './conformance-run.js';

describe.each(adapters)('conformance of the receiver on %s', (_, createAdapter) => {
  let app: INestApplication;
  let url: string;

  beforeAll(async () => {
    const started = await startApp(createAdapter());
    ({ app } = started);
    url = `${started.origin}${PATH}`;
  });
  afterAll(() => app.close());

  it('holds every must and every should', async () => {
    const { code, report: found, stderr } = await report(url);

    expect(found.probes.filter(({ verdict }) => !['pass', 'skipped'].includes(verdict))).toEqual(
      [],
    );
    expect([code, found.end, stderr]).toEqual([0, 'complete', '']);
    expect(found.totals.pass).toBeGreaterThan(80);
  });
});
