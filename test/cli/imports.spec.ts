import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from '@jest/globals';

const LIB = fileURLToPath(new URL('../../lib/', import.meta.url));
/** Imports and re-exports that exist at run time, so none that start with `type`. */
const IMPORT = /^(?:import|export)\s+(?!type\b)(?:[^'";]*?\sfrom\s+)?'([^']+)'/gm;

/** Every package that a file loads, through the files it imports. */
function loaded(file: string, seen = new Set<string>(), packages = new Set<string>()): Set<string> {
  if (seen.has(file)) return packages;
  seen.add(file);
  for (const [, target] of readFileSync(file, 'utf8').matchAll(IMPORT)) {
    if (target!.startsWith('.')) {
      loaded(join(dirname(file), target!.replace(/\.js$/, '.ts')), seen, packages);
    } else packages.add(target!);
  }
  return packages;
}

const isNest = (name: string): boolean => /^@nestjs|^rxjs|^reflect-metadata/.test(name);

describe('the command line', () => {
  it('starts without loading a package', () => {
    expect([...loaded(join(LIB, 'cli/main.ts'))]).toEqual(['node:fs/promises']);
  });

  it('runs conformance without loading Nest', () => {
    const packages = [...loaded(join(LIB, 'cli/conformance.command.ts'))];

    expect(packages).toContain('node:https');
    expect(packages.filter(isNest)).toEqual([]);
  });

  it.each(['sign', 'send', 'listen', 'verify', 'keygen'])(
    'runs %s without loading Nest',
    (name) => {
      const packages = [...loaded(join(LIB, `cli/${name}.command.ts`))];

      expect(packages).not.toEqual([]);
      expect(packages.filter(isNest)).toEqual([]);
    },
  );

  it('explains without loading Nest', () => {
    const packages = [...loaded(join(LIB, 'cli/explain.command.ts'))];

    expect(packages).toContain('@noble/hashes/sha3.js');
    expect(packages.filter(isNest)).toEqual([]);
  });

  it.each(['migrate', 'status', 'sql', 'console', 'import'])(
    'starts %s without loading Nest or a driver',
    (name) => {
      const packages = [...loaded(join(LIB, `cli/${name}.command.ts`))];

      expect(packages.filter((one) => !one.startsWith('node:'))).toEqual([]);
    },
  );

  it('would load Nest if it imported the receiver, which this test detects', () => {
    expect([...loaded(join(LIB, 'receiver/webhook.verifier.ts'))]).toContain('@nestjs/common');
  });
});
