import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { ROOT } from './documents.js';

const README = readFileSync(join(ROOT, 'README.md'), 'utf8');
const MOST_LINES = 250;
const MOST_WORDS = 25;

/** The sentences of the prose: code, tables and headings aside; a link counts by its text. */
function sentences(markdown: string): string[] {
  return markdown
    .replace(/^```[\s\S]*?^```/gm, '\n\n')
    .replace(/^(?:\||#|\[!).*$/gm, '')
    .replace(/^\[[^\]]+\]: .*$/gm, '')
    .replace(/\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])/g, '$1')
    .split(/\n\s*\n|\n(?=- )/)
    .flatMap((paragraph) => paragraph.replace(/\s+/g, ' ').split(/(?<=[.!?:])\s+(?=[A-Z`])/))
    .map((sentence) => sentence.trim())
    .filter((sentence) => sentence !== '');
}

describe('README.md', () => {
  it('is read in a few minutes', () => {
    const long = sentences(README).filter((text) => text.split(' ').length > MOST_WORDS);

    expect(long).toEqual([]);
    expect(README.split('\n').length).toBeLessThanOrEqual(MOST_LINES);
  });
});
