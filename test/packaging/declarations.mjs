import { readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';

/** Packages whose types an application has: Node, its own framework, and what the library depends on. */
const KNOWN = /^(node:|url$|@nestjs\/(common|core)$|rxjs$|jose$)/;

/** An import whose types become `any` where its package is not installed. */
const IGNORED = /\/\*\*? @ts-ignore[^\n]*\*\/\n.*\n/g;

/**
 * Lists the optional packages that the declarations of an entry point need.
 *
 * An application that lacks one of them does not compile with `skipLibCheck: false`.
 *
 * @param folder - the folder of the package
 * @param entry - the declarations of the entry point, such as `./dist/index.d.ts`
 * @returns `<package> by <file>` for each
 */
export function optionalTypesOf(folder, entry) {
  const found = [];
  const seen = new Set();
  const queue = [join(folder, entry)];
  for (let file = queue.pop(); file !== undefined; file = queue.pop()) {
    if (seen.has(file)) continue;
    seen.add(file);
    const text = readFileSync(file, 'utf8').replace(IGNORED, '');
    for (const [, target] of text.matchAll(/(?<!['"])(?:from|import\()\s*['"]([^'"]+)['"]/g)) {
      if (target.startsWith('.')) {
        queue.push(resolve(dirname(file), target).replace(/\.js$/, '.d.ts'));
      } else if (!KNOWN.test(target)) {
        found.push(`${target} by ${relative(folder, file)}`);
      }
    }
  }
  return found;
}
