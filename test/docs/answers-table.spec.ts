import { describe, expect, it } from '@jest/globals';
import { readFileSync } from 'node:fs';
import { WEBHOOK_ANSWERS, type WebhookAnswerRow } from '../../lib/request/webhook-answers.js';

const DOCUMENT = new URL('../../docs/answers.md', import.meta.url);

describe('docs/answers.md', () => {
  it('has the row of the code for every situation, and none besides, in the same order', () => {
    const documented = tableRows(readFileSync(DOCUMENT, 'utf8'));

    expect(documented).toEqual(Object.entries(WEBHOOK_ANSWERS).map(asCells));
  });
});

/** The table's rows as texts, without their marks for code. */
function tableRows(markdown: string): string[][] {
  const lines = markdown.split('\n').filter((line) => line.startsWith('|'));
  const [header, , ...rows] = lines.map((line) =>
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
    const error = challenge === 'plain' ? '' : `, error="${challenge}"`;
    lines.unshift(`WWW-Authenticate: Bearer realm="webhooks"${error}`);
  }
  return lines.join('; ');
}
