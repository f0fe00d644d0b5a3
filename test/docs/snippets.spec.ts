import { beforeAll, describe, expect, it } from '@jest/globals';
import { documents } from './documents.js';
import { MarkdownDocument } from './markdown.js';
import { SnippetCompiler, type Snippet } from './snippet-compiler.js';

/** Languages of a block that the compiler would not see. */
const OTHER_TYPESCRIPT = new Set(['typescript', 'tsx', 'js', 'javascript', 'mjs', '']);

/** The `ts` blocks of a page, and what its `diff` blocks change the code to. */
function snippetsOf({ path, blocks }: MarkdownDocument): Snippet[] {
  return blocks
    .filter(({ language }) => language === 'ts' || language === 'diff')
    .map((block) => ({
      ...block,
      code: block.language === 'diff' ? codeAfter(block.code) : block.code,
      document: path,
    }));
}

/** Removed lines become empty, so that the numbers of the others stay the same. */
function codeAfter(diff: string): string {
  return diff.replace(/^(?:-.*|[+ ])/gm, '');
}

describe('TypeScript blocks of the documentation', () => {
  let compiler: SnippetCompiler;
  beforeAll(() => {
    compiler = new SnippetCompiler();
  });

  it('compile', () => {
    const snippets = documents().flatMap(snippetsOf);

    expect(snippets.length).toBeGreaterThan(10);
    expect(compiler.check(snippets)).toEqual([]);
  });

  it('are all marked as ts, so that the compiler checks them', () => {
    const unseen = documents().flatMap(({ path, blocks }) =>
      blocks
        .filter(
          ({ language, code }) =>
            OTHER_TYPESCRIPT.has(language) || code.trimStart().startsWith('// not compiled'),
        )
        .map(({ line }) => `${path}:${line}`),
    );

    expect(unseen).toEqual([]);
  });

  it.each<[name: string, code: string, error: RegExp, language?: string]>([
    [
      'an option of the wrong type',
      "import { WebhookModule } from 'nestjs-webhook-token';\nWebhookModule.forRoot({ receiver: { path: 1, issuers: [] } });",
      /^page\.md:4: TS\d+ .*'number'/,
    ],
    [
      'a name that is not exported',
      "import { WebhookHook } from 'nestjs-webhook-token';",
      /^page\.md:3: TS\d+ .*WebhookHook/,
    ],
    ['a syntax error', 'const = 1;', /^page\.md:3: TS/],
    [
      'the new side of a diff',
      "-const old = 1;\n+const path: string = 1;\n import 'nestjs-webhook-token';",
      /^page\.md:4: TS\d+ .*'string'/,
      'diff',
    ],
    [
      'data of another type than the snippet declares',
      "declare module 'nestjs-webhook-token' {\n  interface WebhookEventMap {\n    'a.b': { id: string };\n  }\n}\nawait publisher.publish('a.b', { id: 1 });",
      /^page\.md:8: TS\d+ .*'number'/,
    ],
  ])('are reported for %s', (_, code, error, language = 'ts') => {
    const page = new MarkdownDocument('page.md', `# Page\n\`\`\`${language}\n${code}\n\`\`\`\n`);

    const errors = compiler.check(snippetsOf(page));

    expect(errors[0]).toMatch(error);
  });
});
