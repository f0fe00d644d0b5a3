import type { Act, Scene } from './act.js';

/** Prints one act: the request, the answer, and whether they are correct. */
export function printAct(number: number, { title }: Act, scene: Scene): void {
  const { sent, answered, outcome, failures } = scene;
  const verdict: Line = failures.length === 0 ? ['good', outcome] : ['WRONG', failures.join('; ')];
  printLines(`${number}. ${title}`, [['sent', sent], ['answered', answered], verdict]);
}

type Line = readonly [label: string, text: string];

/** Prints a heading and labelled lines. */
export function printLines(heading: string, lines: readonly Line[]): void {
  console.log(heading);
  for (const [label, text] of lines) console.log(`   ${label.padEnd(9)} ${text}`);
  console.log();
}
