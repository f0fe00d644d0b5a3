import { describe, expect, it } from '@jest/globals';
import { existsSync, readdirSync } from 'node:fs';
import { join, posix } from 'node:path';
import { documents, ROOT } from './documents.js';
import { MarkdownDocument } from './markdown.js';

const EXTERNAL = /^[a-z][a-z0-9+.-]*:/i;

/** Links to files that are not there, and to headings that their document does not have. */
function brokenLinks(pages: readonly MarkdownDocument[]): string[] {
  const byPath = new Map(pages.map((page) => [page.path, page]));
  return pages.flatMap((page) =>
    page.links
      .filter(({ target }) => !EXTERNAL.test(target) && !leads(page, target, byPath))
      .map(({ target, line }) => `${page.path}:${line}: ${target}`),
  );
}

function leads(
  page: MarkdownDocument,
  target: string,
  byPath: ReadonlyMap<string, MarkdownDocument>,
): boolean {
  const [file = '', anchor] = target.split('#', 2);
  const path = file === '' ? page.path : posix.join(posix.dirname(page.path), file);
  if (!existsSync(join(ROOT, path)) && !byPath.has(path)) return false;
  return anchor === undefined || byPath.get(path)?.anchors.has(anchor) === true;
}

describe('links of the documents', () => {
  it('lead somewhere', () => {
    const pages = documents();

    expect(pages.flatMap(({ links }) => links).length).toBeGreaterThan(20);
    expect(brokenLinks(pages)).toEqual([]);
  });

  it.each([
    ['a missing file', '[a](missing.md)', ['docs/page.md:3: missing.md']],
    ['a missing heading', '[a](#nowhere)', ['docs/page.md:3: #nowhere']],
    ['a heading missing elsewhere', '[a](../README.md#no)', ['docs/page.md:3: ../README.md#no']],
    ['a heading with marks', '[a](#what-it-is-heads-up)', []],
    ['a link in a table', '| [a](../LICENSE) | [b](no.md) |', ['docs/page.md:3: no.md']],
    ['the web', '[a](https://example.com/#x)', []],
    ['code', '`[a](missing.md)`', []],
  ])('are judged right for %s', (_, text, broken) => {
    const page = new MarkdownDocument('docs/page.md', `# What \`it\` is: heads-up\n\n${text}\n`);

    expect(brokenLinks([page])).toEqual(broken);
  });
});

/** Names of files that no folder of the project has. */
function unknownFiles(pages: readonly MarkdownDocument[]): string[] {
  const paths = ['lib', 'test', '.']
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

describe('files that the documents name', () => {
  it('exist', () => {
    const pages = documents();

    expect(pages.flatMap(({ files }) => files).length).toBeGreaterThan(20);
    expect(unknownFiles(pages)).toEqual([]);
  });

  it('are missed when they do not', () => {
    const page = new MarkdownDocument(
      'page.md',
      'By `receiver/webhook.guard.ts`, `webhook.guard.ts`, `webhook.sentinel.ts`, `index.ts`.',
    );

    expect(unknownFiles([page])).toEqual(['page.md:1: webhook.sentinel.ts']);
  });
});
