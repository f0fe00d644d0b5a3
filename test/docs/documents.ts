import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { MarkdownDocument } from './markdown.js';

/** The root of the repository. */
export const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** What users and contributors read. */
export function documents(): MarkdownDocument[] {
  const pages = readdirSync(join(ROOT, 'docs')).filter((name) => name.endsWith('.md'));
  return [
    'README.md',
    'CHANGELOG.md',
    'CONTRIBUTING.md',
    'SECURITY.md',
    ...pages.sort().map((name) => `docs/${name}`),
  ].map((path) => new MarkdownDocument(path, readFileSync(join(ROOT, path), 'utf8')));
}
