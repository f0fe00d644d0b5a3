import { describe, expect, it } from '@jest/globals';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { documents, ROOT } from './documents.js';
import { MarkdownDocument } from './markdown.js';

const EXTERNAL = /^[a-z][a-z0-9+.-]*:/i;
/** How pages that npm shows link to the repository: relative links lead nowhere there. */
const REPOSITORY = 'https://github.com/nestjs-webhook-token/nestjs-webhook-token/blob/main/';
const SHOWN_BY_NPM = new Set(['README.md']);

/** Links to files that do not exist, and to headings that their page does not have. */
function brokenLinks(pages: readonly MarkdownDocument[]): string[] {
  const byPath = new Map(pages.map((page) => [page.path, page]));
  return pages.flatMap((page) =>
    page.links
      .filter(({ target }) => isBroken(page, target, byPath))
      .map(({ target, line }) => `${page.path}:${line}: ${target}`),
  );
}

function isBroken(
  page: MarkdownDocument,
  target: string,
  byPath: ReadonlyMap<string, MarkdownDocument>,
): boolean {
  if (target.startsWith(REPOSITORY)) {
    return !exists('README.md', target.slice(REPOSITORY.length), byPath);
  }
  if (EXTERNAL.test(target)) return false;
  if (SHOWN_BY_NPM.has(page.path) && !target.startsWith('#')) return true;
  return !exists(page.path, target, byPath);
}

function exists(
  from: string,
  target: string,
  byPath: ReadonlyMap<string, MarkdownDocument>,
): boolean {
  const [file = '', anchor] = target.split('#', 2);
  const path = file === '' ? from : posix.join(posix.dirname(from), file);
  if (!existsSync(join(ROOT, path)) && !byPath.has(path)) return false;
  return anchor === undefined || byPath.get(path)?.anchors.has(anchor) === true;
}

describe('links of the documentation', () => {
  it('lead to files and headings that exist', () => {
    const pages = documents();

    expect(pages.flatMap(({ links }) => links)).not.toEqual([]);
    expect(brokenLinks(pages)).toEqual([]);
  });

  it.each([
    ['a missing file', '[a](missing.md)', ['docs/page.md:3: missing.md']],
    ['a missing heading', '[a](#nowhere)', ['docs/page.md:3: #nowhere']],
    ['a heading missing elsewhere', '[a](../README.md#no)', ['docs/page.md:3: ../README.md#no']],
    ['a heading with marks', '[a](#what-it-is-heads-up)', []],
    ['a link in a table', '| [a](../LICENSE) | [b](no.md) |', ['docs/page.md:3: no.md']],
    ['another site', '[a](https://example.com/#x)', []],
    ['the repository', `[a](${REPOSITORY}LICENSE)`, []],
    [
      'a file that the repository does not have',
      `[a](${REPOSITORY}missing.md)`,
      [`docs/page.md:3: ${REPOSITORY}missing.md`],
    ],
    ['a definition', '[a]: missing.md', ['docs/page.md:3: missing.md']],
    ['code', '`[a](missing.md)`', []],
  ])('are reported only if broken: %s', (_, text, broken) => {
    const page = new MarkdownDocument('docs/page.md', `# What \`it\` is: heads-up\n\n${text}\n`);

    expect(brokenLinks([page])).toEqual(broken);
  });
});

describe('README.md', () => {
  it('has no relative links, which lead nowhere on npm', () => {
    const page = new MarkdownDocument('README.md', '[a](docs/README.md)\n');

    expect(brokenLinks([page])).toEqual(['README.md:1: docs/README.md']);
  });
});

/** Names of files that no folder of the project has. */
function unknownFiles(pages: readonly MarkdownDocument[]): string[] {
  const paths = ['lib', 'test', 'sample', '.']
    .flatMap((folder) =>
      readdirSync(join(ROOT, folder), { recursive: folder !== '.', encoding: 'utf8' }).map(
        (name) => `/${folder}/${name}`,
      ),
    )
    .map((path) => path.replaceAll('\\', '/'));
  return pages.flatMap(({ path, files }) =>
    files
      .filter(({ target }) => !paths.some((known) => known.endsWith(`/${target}`)))
      .map(({ target, line }) => `${path}:${line}: ${target}`),
  );
}

describe('files that the documentation names', () => {
  it('exist', () => {
    const pages = documents();

    expect(pages.flatMap(({ files }) => files)).not.toEqual([]);
    expect(unknownFiles(pages)).toEqual([]);
  });

  it('are reported if they do not exist', () => {
    const page = new MarkdownDocument(
      'page.md',
      'By `receiver/webhook.guard.ts`, `webhook.guard.ts`, `webhook.sentinel.ts`, `index.ts`.',
    );

    expect(unknownFiles([page])).toEqual(['page.md:1: webhook.sentinel.ts']);
  });
});

describe('samples', () => {
  /** Ports by sample, in its `main.ts` or in the addresses of its README. */
  function ports(file: string, pattern: RegExp): [sample: string, ports: string[]][] {
    return readdirSync(join(ROOT, 'sample'))
      .filter((name) => /^\d/.test(name))
      .map((name) => {
        const text = readFileSync(join(ROOT, 'sample', name, file), 'utf8');
        return [name, [...new Set(Array.from(text.matchAll(pattern), ([, port]) => port!))]];
      });
  }

  it('have default ports of their own, which their READMEs name', () => {
    const listening = ports('main.ts', /PORT\s*(?:=|\?\?)\s*'?(\d{4})\b/g);
    const named = new Map(ports('README.md', /127\.0\.0\.1:(3\d{3})\b/g));
    const all = listening.flatMap(([, own]) => own);

    expect(all).not.toEqual([]);
    expect(all).toEqual([...new Set(all)]);
    for (const [sample, own] of listening)
      expect(own).toEqual(expect.arrayContaining(named.get(sample)!));
  });
});
