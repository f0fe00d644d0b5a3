import { describe, expect, it } from '@jest/globals';
import { readFileSync } from 'node:fs';
import { WEBHOOK_ANSWERS, type WebhookAnswerRow } from '../../lib/request/webhook-answers.js';

const DOCUMENT = new URL('../../docs/reference/answers.md', import.meta.url);

describe('docs/reference/answers.md', () => {
  it('lists every situation of the answer table, in the same order', () => {
    const documented = tableRows(readFileSync(DOCUMENT, 'utf8'));

    expect(documented).toEqual(Object.entries(WEBHOOK_ANSWERS).map(asCells));
  });
});

/** The cells of the table's rows, without backticks. */
function tableRows(markdown: string): string[][] {
  const lines = markdown.slice(markdown.indexOf('| Situation')).split('\n');
  const end = lines.findIndex((line) => !line.startsWith('|'));
  const [header, , ...rows] = lines.slice(0, end).map((line) =>
    line
      .slice(1, line.lastIndexOf('|'))
      .split('|')
      .map((cell) => cell.trim().replaceAll('`', '')),
  );
  expect(header).toEqual(['Situation', 'Status', 'Code', 'Headers', 'Meaning']);
  return rows;
}

function asCells([situation, row]: [string, WebhookAnswerRow]): string[] {
  const { status, code = '', title } = row;
  return [situation, String(status), code, headers(row), title];
}

function headers({ challenge, headers = {} }: WebhookAnswerRow): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  if (challenge !== undefined) {
    lines.unshift(challenge === 'plain' ? 'Bearer' : `Bearer ${challenge}`);
  }
  return lines.join('; ');
}
