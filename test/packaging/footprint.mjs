import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** Accepted relative difference between stated and measured size, since dependencies change with their releases. */
const TOLERANCE = 0.1;

/**
 * Measures the size of an installation.
 *
 * @param folder - a project in which only this package is installed
 * @returns `{ megabytes, packages }`; the sum of file sizes, not of disk blocks
 */
export function footprintOf(folder) {
  const modules = join(folder, 'node_modules');
  const lock = JSON.parse(readFileSync(join(modules, '.package-lock.json'), 'utf8'));
  const files = readdirSync(modules, { recursive: true })
    .filter((name) => !name.startsWith('.'))
    .map((name) => statSync(join(modules, name)))
    .filter((entry) => entry.isFile());
  const bytes = files.reduce((sum, { size }) => sum + size, 0);
  return { megabytes: bytes / 1e6, packages: Object.keys(lock.packages).length };
}

/**
 * Compares a footprint with the one that README.md states.
 *
 * @throws if README.md states none, or a different one
 */
export function checkStatedFootprint(readme, { megabytes, packages }) {
  const stated = /(?<megabytes>[\d.]+) MB in (?<packages>\d+) packages/.exec(readme)?.groups;
  const measured = `${megabytes.toFixed(1)} MB in ${packages} packages`;
  if (stated === undefined) throw new Error(`README.md does not state the size: ${measured}`);
  const difference = Math.abs(megabytes / Number(stated.megabytes) - 1);
  if (difference > TOLERANCE || packages !== Number(stated.packages)) {
    throw new Error(
      `README.md says ${stated.megabytes} MB in ${stated.packages} packages, measured: ${measured}`,
    );
  }
}
