import type { Act, Scene } from './act.js';

/** Prints one act: the request, the answer, and whether it is correct. */
export function tellAct(number: number, { title }: Act, scene: Scene): void {
  const { sent, answered, outcome, faults } = scene;
  const verdict: Line = faults.length === 0 ? ['good', outcome] : ['WRONG', faults.join('; ')];
  tellLines(`${number}. ${title}`, [['sent', sent], ['answered', answered], verdict]);
}

type Line = readonly [label: string, text: string];

/** Prints a heading and labelled lines. */
export function tellLines(heading: string, lines: readonly Line[]): void {
  console.log(heading);
  for (const [label, text] of lines) console.log(`   ${label.padEnd(9)} ${text}`);
  console.log();
}
