// Starts a compiled sample with the settings of sample.env: npm run sample -- 01-receiver-express
import { existsSync, readdirSync } from 'node:fs';
import { loadEnvFile } from 'node:process';
import { fileURLToPath } from 'node:url';

const compiled = new URL('../build/sample/', import.meta.url);
const name = process.argv[2] ?? '';
const main = new URL(`${name}/main.js`, compiled);

if (name === '' || !existsSync(main)) {
  const known = existsSync(compiled)
    ? readdirSync(compiled).join(', ')
    : 'none is compiled yet; run "node sample/build.mjs"';
  console.error(`Usage: npm run sample -- <name>\nSamples: ${known}`);
  process.exit(1);
}

// Variables that are already set take precedence.
loadEnvFile(fileURLToPath(new URL('sample.env', import.meta.url)));
await import(main.href);
