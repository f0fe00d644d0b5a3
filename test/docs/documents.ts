import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { MarkdownDocument } from './markdown.js';

/** The root of the repository. */
export const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Reads a page of the documentation, by its path from the root of the repository. */
export function documentAt(path: string): MarkdownDocument {
  return new MarkdownDocument(path, readFileSync(join(ROOT, path), 'utf8'));
}

/** Every page for users and contributors. */
export function documents(): MarkdownDocument[] {
  return [
    ...pagesIn('.', false),
    ...pagesIn('docs', true),
    ...pagesIn('sample', true),
    'test/vectors/README.md',
  ].map(documentAt);
}

function pagesIn(folder: string, recursive: boolean): string[] {
  return readdirSync(join(ROOT, folder), { recursive, encoding: 'utf8' })
    .map((name) => name.replaceAll('\\', '/'))
    .filter((name) => name.endsWith('.md') && !name.includes('node_modules/'))
    .map((name) => (folder === '.' ? name : `${folder}/${name}`))
    .sort();
}
