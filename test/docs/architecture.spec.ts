import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { ROOT } from './documents.js';

const PATH = 'docs/explanation/architecture.md';
const PAGE = readFileSync(join(ROOT, PATH), 'utf8');
const MOST_FILES = 8;

/** The files of a main path: the first one that each numbered line of the section names. */
function filesOf(heading: string): string[] {
  const section = PAGE.slice(PAGE.indexOf(`\n## ${heading}\n`)).split(/\n## /)[1]!;
  return [...section.matchAll(/^\d+\. `([^`]+)`/gm)].map(([, file]) => file!);
}

describe(PATH, () => {
  it.each(['A request', 'An event'])('names files that exist, at most eight: %s', (heading) => {
    const files = filesOf(heading);

    expect(files).not.toEqual([]);
    expect(files.filter((file) => !existsSync(join(ROOT, 'lib', file)))).toEqual([]);
    expect(files.length).toBeLessThanOrEqual(MOST_FILES);
  });

  it('describes every folder of lib, and no other', () => {
    const table = PAGE.slice(PAGE.indexOf('| Folder')).split('\n\n')[0]!;
    const described = table
      .split('\n')
      .slice(2)
      .flatMap((row) => [...row.split('|')[1]!.matchAll(/`(\w+)`/g)].map(([, folder]) => folder!));
    const folders = readdirSync(join(ROOT, 'lib'), { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name);

    expect(described.sort()).toEqual(folders.sort());
  });
});
