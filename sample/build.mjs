// Compiles the library and the samples if a source is newer than the last build. Safe while samples run: it overwrites
// compiled files and deletes none.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const tsc = join(root, 'node_modules/typescript/bin/tsc');

/** Build steps, in order: the samples import the library's output. */
const STEPS = {
  library: {
    sources: ['lib', 'tsconfig.json', 'tsconfig.build.json', 'package.json'],
    output: 'dist/index.js',
    arguments: ['-p', 'tsconfig.build.json'],
  },
  samples: {
    sources: ['lib', 'sample', 'tsconfig.json', 'package.json'],
    output: 'build/sample/demo/main.js',
    // Without --force, tsc does not notice that the library's declarations changed.
    arguments: ['-b', 'sample', '--force'],
  },
};

/**
 * Compiles the steps that are out of date.
 *
 * @param names - `library`, `samples`; both by default
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
    execFileSync(process.execPath, [tsc, ...step.arguments], { cwd: root, stdio: 'inherit' });
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
