import { readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';

/** Packages whose types an application has: its own framework, and what the library depends on. */
const KNOWN = /^(node:|@nestjs\/(common|core)$|rxjs$|jose$)/;

/**
 * Lists the optional packages that the declarations of an entry point need.
 *
 * An application that lacks one of them does not compile with `skipLibCheck: false`.
 *
 * @param dist - the folder of the compiled library
 * @param entry - its file, such as `index.d.ts`
 * @returns `<package> by <file>` for each
 */
export function optionalTypesOf(dist, entry) {
  const found = [];
  const seen = new Set();
  const queue = [join(dist, entry)];
  for (let file = queue.pop(); file !== undefined; file = queue.pop()) {
    if (seen.has(file)) continue;
    seen.add(file);
    const text = readFileSync(file, 'utf8');
    for (const [, target] of text.matchAll(/(?:from|import\()\s*['"]([^'"]+)['"]/g)) {
      if (target.startsWith('.')) {
        queue.push(resolve(dirname(file), target).replace(/\.js$/, '.d.ts'));
      } else if (!KNOWN.test(target)) {
        found.push(`${target} by ${relative(dist, file)}`);
      }
    }
  }
  return found;
}
