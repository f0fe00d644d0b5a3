import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { ROOT } from './documents.js';

describe('llms.txt', () => {
  const text = readFileSync(join(ROOT, 'llms.txt'), 'utf8');

  it('is what `npm run llms` writes', () => {
    const printed = execFileSync(process.execPath, [join(ROOT, 'docs/llms.mjs')]);

    expect(text).toBe(printed.toString());
  });

  it('has a summary for each page', () => {
    expect(text.split('\n').filter((line) => /^- \[.*\): ?$/.test(line))).toEqual([]);
  });

  it('has absolute links only', () => {
    const targets = [...text.matchAll(/\]\(([^)\n]*)/g)].map(([, target]) => target!);

    expect(targets.filter((target) => !target.startsWith('https://'))).toEqual([]);
  });
});
