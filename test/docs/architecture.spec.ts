import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { ROOT } from './documents.js';

const PATH = 'docs/explanation/architecture.md';
const PAGE = readFileSync(join(ROOT, PATH), 'utf8');
const LIB = join(ROOT, 'lib');
const MOST_FILES = 8;

/** Folders that never import one of the other list. */
const RECEIVING = ['receiver', 'explain', 'request'];
const SENDING = ['publisher', 'deliveries', 'endpoints', 'sending', 'signing'];

/** The folders of the table, from the highest layer to the lowest. */
function layers(): string[] {
  const table = PAGE.slice(PAGE.indexOf('| Folder')).split('\n\n')[0]!;
  return table
    .split('\n')
    .slice(2)
    .flatMap((row) => [...row.split('|')[1]!.matchAll(/`(\w+)`/g)].map(([, folder]) => folder!));
}

/** The files of a main path: the first one that each numbered line of the section names. */
function filesOf(heading: string): string[] {
  const section = PAGE.slice(PAGE.indexOf(`\n## ${heading}\n`)).split(/\n## /)[1]!;
  return [...section.matchAll(/^\d+\. `([^`]+)`/gm)].map(([, file]) => file!);
}

/** Imports from one folder of `lib` to another: `[from, to, file]`. */
function importsBetweenFolders(): [from: string, to: string, file: string][] {
  return readdirSync(LIB, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts'))
    .flatMap((file) => {
      const path = join(LIB, file);
      const text = readFileSync(path, 'utf8');
      return [...text.matchAll(/(?:from|import\()\s*'(\.[^']+)'/g)].map(
        ([, target]): [string, string, string] => [
          folderOf(file),
          folderOf(relative(LIB, resolve(dirname(path), target!))),
          `${file} imports ${target}`,
        ],
      );
    })
    .filter(([from, to]) => from !== to);
}

function folderOf(file: string): string {
  const [folder = '', ...rest] = file.split(/[\\/]/);
  return rest.length === 0 ? '' : folder;
}

describe(PATH, () => {
  it.each(['A request', 'An event'])('names files that exist, at most eight: %s', (heading) => {
    const files = filesOf(heading);

    expect(files).not.toEqual([]);
    expect(files.filter((file) => !existsSync(join(LIB, file)))).toEqual([]);
    expect(files.length).toBeLessThanOrEqual(MOST_FILES);
  });

  it('lists every folder of lib, and no other', () => {
    const folders = readdirSync(LIB, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name);

    expect(layers().sort()).toEqual(folders.sort());
  });

  it('lists the layers so that imports point down', () => {
    const rank = new Map(layers().map((folder, index) => [folder, index]));

    const upward = importsBetweenFolders().filter(
      ([from, to]) => from !== '' && (to === '' || rank.get(to)! < rank.get(from)!),
    );

    expect(upward.map(([, , file]) => file)).toEqual([]);
  });

  it('keeps the receiving and the sending side apart', () => {
    const across = importsBetweenFolders().filter(
      ([from, to]) =>
        (RECEIVING.includes(from) && SENDING.includes(to)) ||
        (SENDING.includes(from) && RECEIVING.includes(to)),
    );

    expect(across.map(([, , file]) => file)).toEqual([]);
  });
});
