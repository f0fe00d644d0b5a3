import { expect, it } from '@jest/globals';
import { describeWith, urlOf } from '../fixtures/services.js';
import { SampleProcess } from './sample-process.js';

(await describeWith('Redis'))('sample 06-replicas-redis', () => {
  it('handles each event once, although both replicas receive it', async () => {
    const sample = SampleProcess.start('06-replicas-redis', { REDIS_URL: urlOf('Redis') });

    expect(await sample.exitCode()).toBe(0);

    const handled = sample.lines.filter((line) => / is handled by the replica [AB]$/.test(line));
    const summaries = sample.lines.filter((line) => line.includes('was sent to both replicas'));
    expect([handled.length, new Set(handled.map((line) => line.split(' ')[0])).size]).toEqual([
      5, 5,
    ]);
    expect(summaries).toHaveLength(5);
    for (const line of summaries) {
      expect(line).toMatch(
        /say: (handled; (known|being)|(known already|being handled [^;]*); handled)/,
      );
    }
  });
});
