// Draws an SVG for each comparison in a report: node bench/charts.mjs FILE [FOLDER]
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { chartOf } from './charts/bar-chart.mjs';

const [, , file, folder = 'docs/explanation/charts'] = process.argv;
if (file === undefined) {
  console.error(
    'Usage: node bench/charts.mjs FILE [FOLDER]; npm run bench -- --json FILE writes FILE',
  );
  process.exit(2);
}
const { machine, date, results } = JSON.parse(readFileSync(file, 'utf8'));
const source = `${machine}, ${date.slice(0, 10)}`;
mkdirSync(folder, { recursive: true });
for (const comparison of Object.values(results).flat()) {
  // Rows with different units cannot share an axis.
  if (comparison.rows.length < 2 || comparison.unit === undefined) continue;
  const name = `${comparison.title.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-')}.svg`;
  writeFileSync(join(folder, name), chartOf(comparison, source));
  console.log(join(folder, name));
}
