import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it, jest } from '@jest/globals';
import { program } from './servers.mjs';
import { SET_UPS } from './set-ups.mjs';

jest.setTimeout(300_000);

const SCRIPT = join(import.meta.dirname, 'run.mjs');
const SECONDS = 6;

interface Row {
  readonly acknowledged: number;
  readonly lost: number;
}

/** In CI, a program that is not installed is an error. */
function describeWith(needs: readonly string[], name: string): typeof describe.skip {
  const missing = needs.filter((one) => program(one) === undefined);
  if (missing.length === 0) return describe;
  const message = `${missing.join(', ')} not found`;
  if (process.env['REQUIRE_SERVICES'] !== undefined) throw new Error(`${name}: ${message}`);
  process.stderr.write(`Skipped the tests on ${name}: ${message}.\n`);
  return describe.skip;
}

// A soak of seconds shows nothing.
const short = Object.entries(SET_UPS).filter(([name]) => !name.startsWith('soak-'));
for (const [name, { needs }] of short) {
  describeWith(needs, name)(`applications on the set-up ${name}`, () => {
    it('handle every acknowledged event', async () => {
      const args = ['--no-warnings', SCRIPT, name, '--json', '--seconds', String(SECONDS)];
      const { stdout } = await promisify(execFile)(process.execPath, args);
      const [{ acknowledged, lost }] = JSON.parse(stdout) as [Row];

      expect(acknowledged).toBeGreaterThan(100);
      expect(lost).toBe(0);
    });
  });
}
