// Bundles the page of the console into dist/console/public: an index, a script and a style sheet, the latter with hashed names.
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = new URL('.', import.meta.url);
const { version } = JSON.parse(await readFile(new URL('../../../package.json', here), 'utf8'));
const output = new URL('../../../dist/console/public/', here);

await rm(output, { recursive: true, force: true });
const { metafile } = await build({
  entryPoints: ['main.tsx', 'style.css'].map((name) => ({
    in: fileURLToPath(new URL(name, here)),
    out: 'console',
  })),
  outdir: fileURLToPath(new URL('assets/', output)),
  entryNames: '[name]-[hash]',
  define: { PACKAGE_VERSION: JSON.stringify(version) },
  bundle: true,
  minify: true,
  format: 'esm',
  target: 'es2022',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'inline',
  metafile: true,
  logLevel: 'warning',
});
let index = await readFile(new URL('index.html', here), 'utf8');
for (const path of Object.keys(metafile.outputs)) {
  const name = basename(path);
  index = index.replace(`console${name.slice(name.lastIndexOf('.'))}`, name);
}
await mkdir(output, { recursive: true });
await writeFile(new URL('index.html', output), index);
