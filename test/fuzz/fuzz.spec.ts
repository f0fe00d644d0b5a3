import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from '@jest/globals';

const SCRIPT = join(import.meta.dirname, 'run.mjs');

describe('the fuzzer', () => {
  it('finds no unexpected outcome in 20,000 tokens', async () => {
    const { stdout } = await promisify(execFile)(process.execPath, [SCRIPT, '--count', '20000']);

    expect(stdout).toMatch(/^20000 tokens, seed 1, .*: nothing unexpected$/m);
    // The tokens reach every stage of verification.
    for (const outcome of ['token accepted', 'payload accepted', 'bad_signature', 'key accepted']) {
      expect(stdout).toContain(outcome);
    }
  });

  it('repeats a run with the same seed', async () => {
    const args = [SCRIPT, '--count', '2000', '--seed', '7'];
    const counts = async (): Promise<string> => {
      const { stdout } = await promisify(execFile)(process.execPath, args);
      return stdout.slice(0, stdout.lastIndexOf('2000 tokens'));
    };

    expect(await counts()).toBe(await counts());
  });
});
