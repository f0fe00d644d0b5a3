// Compiles the library, the page of the console and the samples if a source is newer than the last build. Safe while samples
// run: it overwrites compiled files and deletes none.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const tsc = 'node_modules/typescript/bin/tsc';

/** Build steps, in order: the samples import the library's output. */
const STEPS = {
  library: {
    sources: ['lib', 'tsconfig.json', 'tsconfig.build.json', 'package.json'],
    output: 'dist/index.js',
    commands: [[tsc, '-p', 'tsconfig.build.json'], ['lib/bundle.mjs']],
  },
  page: {
    sources: ['lib/console', 'package.json'],
    output: 'dist/console/page.js',
    commands: [['lib/console/page/build.mjs']],
  },
  samples: {
    sources: ['lib', 'sample', 'tsconfig.json', 'package.json'],
    output: 'build/sample/demo/main.js',
    // Without --force, tsc does not notice that the library's declarations changed.
    commands: [[tsc, '-b', 'sample', '--force']],
  },
};

/**
 * Compiles the steps that are out of date.
 *
 * @param names - `library`, `page`, `samples`; all by default
 */
export function build(names = Object.keys(STEPS)) {
  for (const name of names) {
    const step = STEPS[name];
    const stamp = join(root, 'build', `${name}.stamp`);
    const isFresh =
      existsSync(join(root, step.output)) &&
      existsSync(stamp) &&
      statSync(stamp).mtimeMs > Math.max(...step.sources.map((path) => newest(join(root, path))));
    if (isFresh) continue;
    // Sources that change during the build are newer than the stamp.
    const startedAt = new Date();
    console.error(`Compiling the ${name} …`);
    for (const command of step.commands)
      execFileSync(process.execPath, command, { cwd: root, stdio: 'inherit' });
    mkdirSync(join(root, 'build'), { recursive: true });
    writeFileSync(stamp, startedAt.toISOString());
    utimesSync(stamp, startedAt, startedAt);
  }
}

/** Time of the latest change below a path, in epoch milliseconds. */
function newest(path) {
  const { mtimeMs } = statSync(path);
  if (!statSync(path).isDirectory()) return mtimeMs;
  return Math.max(mtimeMs, ...readdirSync(path).map((name) => newest(join(path, name))));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) build();
