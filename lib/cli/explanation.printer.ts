import type { WebhookExplanation } from '../explain/webhook-explanation.interface.js';
import type { ReceiptDifference } from '../token/webhook-receipt.js';
import { printableJson } from './arguments.js';

const MARKS = { passed: 'ok', failed: 'FAILED', skipped: '-' } as const;

/** Columns of a line. */
const WIDTH = 110;

/** Formats an explanation: verdict, event, steps, hints and differences. */
export function printExplanation(
  explanation: WebhookExplanation,
  differences: readonly ReceiptDifference[] | undefined,
): string {
  const { verdict, code, status, steps, hints, receipt } = explanation;
  const lines = [
    code === undefined ? verdict : `${verdict}: ${code} (${status})`,
    ...identity(receipt),
    '',
  ];
  lines.push(...table(steps.map(({ step, outcome, detail }) => [step, MARKS[outcome], detail])));
  lines.push(...hintLines(hints));
  if (differences !== undefined) {
    lines.push(
      '',
      differences.length === 0
        ? 'no differences from the receipt of the sender'
        : 'differences from the receipt of the sender',
    );
    lines.push(
      ...table(
        differences.map(({ field, sent, received }) => [
          field,
          `sent ${show(sent)}, received ${show(received)}`,
        ]),
      ),
    );
  }
  return `${lines.join('\n')}\n`;
}

/** The lines of hints, after an empty one; none without hints. */
export function hintLines(hints: WebhookExplanation['hints']): string[] {
  return hints.length === 0
    ? []
    : ['', 'hints', ...table(hints.map((hint) => [hint.code, hint.detail]))];
}

/** Who sent which event, according to the token. */
function identity(receipt: WebhookExplanation['receipt']): string[] {
  const { event, id, issuer, kid, authenticated } = receipt ?? {};
  const claims = Object.entries({ event, id, issuer, kid })
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name} "${value}"`);
  if (claims.length === 0) return [];
  return [`${authenticated === true ? '' : 'unverified: '}${claims.join(', ')}`];
}

/** Lines of aligned columns, indented; the last column is wrapped. */
function table(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.map((row) => row[column]!.length)),
  );
  return rows.flatMap((row) => {
    const columns = row.slice(0, -1).map((cell, column) => cell.padEnd(widths[column]!));
    const head = `  ${columns.join('  ')}  `;
    return wrapped(row.at(-1)!, WIDTH - head.length).map((line, index) =>
      index === 0 ? `${head}${line}` : `${' '.repeat(head.length)}${line}`,
    );
  });
}

function wrapped(text: string, width: number): string[] {
  const lines = [''];
  for (const word of text.split(' ')) {
    const line = lines.at(-1)!;
    if (line !== '' && line.length + 1 + word.length > width) lines.push(word);
    else lines[lines.length - 1] = line === '' ? word : `${line} ${word}`;
  }
  return lines;
}

function show(value: unknown): string {
  return value === undefined ? 'nothing' : printableJson(value);
}
