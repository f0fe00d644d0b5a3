// Bundles the compiled modules in build/lib into dist: one file for each entry point, and chunks for what they share. An
// import of the root then reads 40 files instead of 200, in half the time. Classes keep their names, which Nest prints.
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { rollup } from '@rollup/wasm-node';

const root = new URL('../', import.meta.url);
const json = async (path) => JSON.parse(await readFile(new URL(path, root), 'utf8'));
const { exports, bin, schematics } = await json('package.json');
const collection = await json(schematics);

const entries = [
  ...Object.values(exports).map((entry) => entry.default),
  ...Object.values(bin),
  ...Object.values(collection.schematics).map(({ factory }) => factory),
]
  .map((path) => /\bdist\/(.+)\.js$/.exec(path ?? '')?.[1])
  .filter((name) => name !== undefined);

const bundle = await rollup({
  input: Object.fromEntries(
    entries.map((name) => [name, fileURLToPath(new URL(`build/lib/${name}.js`, root))]),
  ),
  external: (id) => !id.startsWith('.') && !id.startsWith('/'),
  onLog(level, log) {
    // The decorator helpers of TypeScript look for a global `this` first.
    if (log.code !== 'THIS_IS_UNDEFINED') console.error(`${level}: ${log.message}`);
  },
});
await bundle.write({
  dir: fileURLToPath(new URL('dist', root)),
  format: 'es',
  // All files but the root entry are one folder deep, because some read files relative to their own.
  chunkFileNames: 'chunks/[name]-[hash].js',
  hoistTransitiveImports: false,
});
await bundle.close();
