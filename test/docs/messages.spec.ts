import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { ROOT } from './documents.js';

const PATH = 'docs/reference/errors.md';
const PAGE = readFileSync(join(ROOT, PATH), 'utf8');

/** The sources of the package, as one string. */
function sources(): string {
  return readdirSync(join(ROOT, 'lib'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => readFileSync(join(ROOT, 'lib', name), 'utf8'))
    .join('\n');
}

/** The code in the first column of the table that follows a header cell. */
function firstColumn(header: string): string[] {
  const table = PAGE.slice(PAGE.indexOf(`| ${header} `)).split('\n\n')[0]!;
  return table
    .split('\n')
    .slice(2)
    .flatMap((row) => [...row.split('|')[1]!.matchAll(/`([^`]+)`/g)].map(([, code]) => code!));
}

describe(PATH, () => {
  it.each(['Code', 'Class'])('names only what the package has, in the table "%s"', (header) => {
    const named = firstColumn(header);
    const text = sources();

    expect(named).not.toEqual([]);
    expect(named.filter((one) => !text.includes(one))).toEqual([]);
  });

  it('lists every code of the errors of the publisher', () => {
    const declared = /type WebhookDeliveryErrorCode =([^;]*);/.exec(sources())![1]!;
    const codes = [...declared.matchAll(/'(\w+)'/g)].map(([, code]) => code!);

    expect(codes).not.toEqual([]);
    expect(codes.filter((code) => !PAGE.includes(`\`${code}\``))).toEqual([]);
  });

  it('lists every reason of a failed attempt', () => {
    const declared = /type FailureReason =([^;]*);/.exec(sources())![1]!;
    const reasons = [...declared.matchAll(/'(\w+)'/g)].map(([, reason]) => reason!);

    expect(reasons).not.toEqual([]);
    expect(reasons.filter((reason) => !PAGE.includes(`\`${reason}\``))).toEqual([]);
  });
});
