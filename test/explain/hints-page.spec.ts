import { readFileSync } from 'node:fs';
import { expect, it } from '@jest/globals';
import { EXPLANATION_HINTS } from '../../lib/explain/webhook-explanation.interface.js';

const PAGE = readFileSync(new URL('../../docs/guides/explain.md', import.meta.url), 'utf8');

it('docs/guides/explain.md lists every hint, and no other', () => {
  const [, table = ''] = /\n## Hints\n([\s\S]*?)\n## /.exec(PAGE) ?? [];
  const rows = table.split('\n').filter((line) => line.startsWith('| `'));
  const listed = rows.flatMap((row) =>
    [...row.split('|')[1]!.matchAll(/`(\w+)`/g)].map(([, code]) => code!),
  );

  expect(listed.sort()).toEqual([...EXPLANATION_HINTS].sort());
});
