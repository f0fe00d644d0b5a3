import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** Share by which the size that is stated may differ: dependencies have releases of their own. */
const TOLERANCE = 0.1;

/**
 * What an installation takes.
 *
 * @param folder - in which the package was installed, alone
 * @returns `{ megabytes, packages }`; the sum of its files, not of the blocks of a disk
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
 * Holds a footprint against what README.md says of it.
 *
 * @throws where it says nothing, or something else
 */
export function checkStatedFootprint(readme, { megabytes, packages }) {
  const stated = /(?<megabytes>[\d.]+) MB in (?<packages>\d+) packages/.exec(readme)?.groups;
  const measured = `${megabytes.toFixed(1)} MB in ${packages} packages`;
  if (stated === undefined) throw new Error(`README.md does not say that it takes ${measured}`);
  const difference = Math.abs(megabytes / Number(stated.megabytes) - 1);
  if (difference > TOLERANCE || packages !== Number(stated.packages)) {
    throw new Error(
      `README.md says ${stated.megabytes} MB in ${stated.packages} packages, measured: ${measured}`,
    );
  }
}
