// Bundles the page of the console into dist/console/page.js, a module that has its files by path: an index, a script and a style
// sheet, the latter two with hashed names.
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { basename, extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = new URL('.', import.meta.url);
const { version } = JSON.parse(await readFile(new URL('../../../package.json', here), 'utf8'));
const output = new URL('../../../dist/console/', here);

const { outputFiles } = await build({
  entryPoints: ['main.tsx', 'style.css'].map((name) => ({
    in: fileURLToPath(new URL(name, here)),
    out: 'console',
  })),
  outdir: fileURLToPath(output),
  entryNames: '[name]-[hash]',
  define: { PACKAGE_VERSION: JSON.stringify(version) },
  bundle: true,
  minify: true,
  format: 'esm',
  target: 'es2022',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'inline',
  write: false,
  logLevel: 'warning',
});
let index = await readFile(new URL('index.html', here), 'utf8');
const files = {};
for (const { path, text } of outputFiles) {
  const name = basename(path);
  index = index.replace(`console${extname(name)}`, name);
  files[`assets/${name}`] = text;
}
files['index.html'] = index;
await mkdir(output, { recursive: true });
await writeFile(new URL('page.js', output), `export const files = ${JSON.stringify(files)};\n`);
