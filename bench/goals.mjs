import { readFileSync } from 'node:fs';

/**
 * Compares the measurements with goals.json and prints the result for each goal.
 *
 * @param comparisons the results of all scenarios in one list; goals for other comparisons are ignored
 * @returns number of missed goals
 */
export function checkGoals(comparisons) {
  const goals = JSON.parse(readFileSync(new URL('goals.json', import.meta.url), 'utf8'));
  const lines = goals.flatMap((goal) => {
    const comparison = comparisons.find(({ title }) => title === goal.title);
    return comparison === undefined ? [] : [judge(goal, comparison)];
  });
  console.log('\ngoals');
  for (const { met, text } of lines) console.log(`  ${met ? 'met   ' : 'MISSED'}  ${text}`);
  return lines.filter(({ met }) => !met).length;
}

function judge({ row, than, atLeast, atMost, title }, { rows, baseline }) {
  const found = rows.find(({ name }) => name === row);
  const subject = `${title}: ${row}`;
  if (found === undefined) return { met: false, text: `${subject} was not measured` };
  if (found.ratio === undefined) {
    const limit = atMost === undefined ? `at least ${atLeast}` : `at most ${atMost}`;
    return {
      met: atMost === undefined ? found.value >= atLeast : found.value <= atMost,
      text: `${subject}: ${round(found.value)}, ${limit}`,
    };
  }
  const other = than === undefined ? 1 : rows.find(({ name }) => name === than).ratio;
  const [low, high] = found.band.map((edge) => round(edge / other));
  const measured = `${round(found.ratio / other)} (${low} to ${high}) times "${than ?? baseline}"`;
  return {
    met: found.ratio / other >= atLeast,
    text: `${subject}: ${measured}, at least ${atLeast}`,
  };
}

function round(value) {
  return value.toFixed(2);
}
