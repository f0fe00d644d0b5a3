import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import ts from 'typescript';
import { ROOT } from './documents.js';

const PATH = 'docs/explanation/architecture.md';
const PAGE = readFileSync(join(ROOT, PATH), 'utf8');
const LIB = join(ROOT, 'lib');
/**
 * The most files that the page names on each path. A request includes the call of the handler with its parameters, and an event what is
 * below HttpService: both are needed for each.
 */
const MOST_FILES = { 'A request': 18, 'An event': 15 };
/** The most files that `receiver/receive.ts` loads. */
const MOST_LOADED = 35;

/** Folders that never import one of the other list. */
const RECEIVING = ['receiver', 'explain', 'request', 'senders'];
const SENDING = ['publisher', 'deliveries', 'endpoints', 'sending', 'signing'];
/** Folders that implement ports, and what they may know of the layers above `queue`. */
const ENGINES = ['postgres', 'bullmq', 'redis'];
const PORTS = ['endpoints/endpoint-store.ts', 'endpoints/activity-store.ts'];
/** Folders above both sides. */
const JOINING = ['testing', 'console', 'opentelemetry', 'health', 'openapi', 'schematics'];
/** Folders that may import Nest and rxjs at run time. */
const NEST = ['', 'receiver', ...SENDING, ...JOINING];
/** Folders that are the only ones to import a package. */
const OWNED = {
  '@opentelemetry/': 'opentelemetry',
  '@nestjs/terminus': 'health',
  '@nestjs/schematics': 'schematics',
};
/** Packages that are loaded when they are used, if at all. */
const OPTIONAL =
  /^(express|fastify|@nestjs\/(platform-|axios)|axios|pg$|@electric-sql|ioredis|redis$)/;

interface Import {
  /** Paths below `lib`; `to` is a package if it is not a file of `lib`. */
  readonly file: string;
  readonly to: string;
  readonly isInternal: boolean;
  readonly isTypeOnly: boolean;
  readonly isDynamic: boolean;
}

/** The folders of the table, from the highest layer to the lowest. */
function layers(): string[] {
  const table = PAGE.slice(PAGE.indexOf('| Folder')).split('\n\n')[0]!;
  return table
    .split('\n')
    .slice(2)
    .flatMap((row) => [...row.split('|')[1]!.matchAll(/`(\w+)`/g)].map(([, folder]) => folder!));
}

/** The files of a main path: every one that the numbered lines of the section name. */
function filesOf(heading: string): string[] {
  const section = PAGE.slice(PAGE.indexOf(`\n## ${heading}\n`)).split(/\n## /)[1]!;
  const steps = [...section.matchAll(/^\d+\. .*(?:\n {3}.*)*/gm)].map(([step]) => step).join('\n');
  return [...new Set([...steps.matchAll(/`([\w./-]+\.ts)`/g)].map(([, file]) => file!))];
}

/** The files that a file loads at run time, directly and indirectly. */
function loadedBy(file: string): string[] {
  const loaded = new Set<string>();
  const visit = (one: string): void => {
    for (const { file: from, to, isTypeOnly, isDynamic } of internal) {
      if (from !== one || isTypeOnly || isDynamic || loaded.has(to)) continue;
      loaded.add(to);
      visit(to);
    }
  };
  visit(file);
  return [...loaded];
}

function importsOfLib(): Import[] {
  return readdirSync(LIB, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts'))
    .flatMap(importsOf);
}

function importsOf(file: string): Import[] {
  const path = join(LIB, file);
  const source = ts.createSourceFile(path, readFileSync(path, 'utf8'), ts.ScriptTarget.ES2022);
  const found: Import[] = [];
  const add = (to: string, isTypeOnly: boolean, isDynamic = false): void => {
    const isInternal = to.startsWith('.');
    const target = isInternal
      ? relative(LIB, resolve(dirname(path), to)).replace(/\.js$/, '.ts')
      : to;
    found.push({ file, to: target, isInternal, isTypeOnly, isDynamic });
  };
  const visit = (node: ts.Node): void => {
    if (ts.isImportDeclaration(node)) {
      const isTypeOnly = node.importClause?.phaseModifier === ts.SyntaxKind.TypeKeyword;
      add((node.moduleSpecifier as ts.StringLiteral).text, isTypeOnly);
    } else if (ts.isExportDeclaration(node) && node.moduleSpecifier !== undefined) {
      add((node.moduleSpecifier as ts.StringLiteral).text, node.isTypeOnly);
    } else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
      const [target] = node.arguments;
      if (target !== undefined && ts.isStringLiteral(target)) add(target.text, false, true);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

/** First folder below `lib`; empty for a file at its root. */
function folderOf(file: string): string {
  const [folder = '', ...rest] = file.split(/[\\/]/);
  return rest.length === 0 ? '' : folder;
}

/** The files of lib that package.json exports. */
function entryPoints(): string[] {
  const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    exports: Record<string, { types?: string } | string>;
  };
  return Object.values(manifest.exports)
    .flatMap((entry) => (typeof entry === 'string' ? [] : [entry.types ?? '']))
    .map((types) => types.replace('./dist/', 'lib/').replace('.d.ts', '.ts'));
}

/** What a test imports of the library: its files, in `lib` or built. */
function importsOfTest(file: string): string[] {
  const path = join(ROOT, file);
  return ts
    .preProcessFile(readFileSync(path, 'utf8'))
    .importedFiles.filter(({ fileName }) => fileName.startsWith('.'))
    .map(({ fileName }) => relative(ROOT, resolve(dirname(path), fileName)))
    .filter((target) => /^(lib|dist)\//.test(target))
    .map((target) => target.replace(/^dist/, 'lib').replace(/\.js$/, '.ts'));
}

function named(imports: readonly Import[]): string[] {
  return imports.map(({ file, to }) => `${file} imports ${to}`);
}

const imports = importsOfLib();
const internal = imports.filter(({ isInternal }) => isInternal);

describe(PATH, () => {
  it.each(Object.entries(MOST_FILES))('names files that exist: %s, at most %i', (heading, most) => {
    const files = filesOf(heading);

    expect(files).not.toEqual([]);
    expect(files.filter((file) => !existsSync(join(LIB, file)))).toEqual([]);
    expect(files.length).toBeLessThanOrEqual(most);
  });

  it('names files that load each other, or that Nest injects: A request', () => {
    const loaded = loadedBy('receiver/receive.ts');
    // The mount calls the pipeline.
    const around = ['receiver/mount/mounted-paths.ts', 'receiver/receive.ts'];
    // Made at start-up, from the options and the decorators.
    const injected = [
      'receiver/decorators/webhook-data.decorator.ts',
      'receiver/handlers/handler-call.ts',
      'token/keys/token-keys.ts',
      'token/token-verifier.ts',
      'replay/memory-replay.store.ts',
    ];
    const others = filesOf('A request').filter((file) => !loaded.includes(file));

    expect(others.sort()).toEqual([...around, ...injected].sort());
    expect(loaded.length).toBeLessThanOrEqual(MOST_LOADED);
  });

  it('lists every folder of lib, and no other', () => {
    const folders = readdirSync(LIB, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name);

    expect(layers().sort()).toEqual(folders.sort());
  });

  it('lists the layers in an order in which every import points down', () => {
    const order = layers();
    const upward = internal.filter(({ file, to }) => {
      const [from, target] = [folderOf(file), folderOf(to)];
      if (from === target) return false;
      // The module definition joins both sides.
      if (from === '') return ['testing', 'cli', 'console'].includes(target);
      // Helpers replace parts of the module.
      if (target === '' && from === 'testing') return false;
      return order.indexOf(target) <= order.indexOf(from);
    });

    expect(named(upward)).toEqual([]);
  });

  it('keeps the receiving and the sending side apart', () => {
    const across = internal.filter(({ file, to }) => {
      const [from, target] = [folderOf(file), folderOf(to)];
      return (
        (RECEIVING.includes(from) && SENDING.includes(target)) ||
        (SENDING.includes(from) && RECEIVING.includes(target))
      );
    });

    expect(named(across)).toEqual([]);
  });

  it('lets engines see the ports they implement, and nothing else of either side', () => {
    const beyond = internal.filter(
      ({ file, to }) =>
        ENGINES.includes(folderOf(file)) &&
        [...RECEIVING, ...SENDING].includes(folderOf(to)) &&
        !PORTS.includes(to),
    );

    expect(named(beyond)).toEqual([]);
  });

  it('keeps Nest out of the folders that work without it', () => {
    const nest = imports.filter(
      ({ file, to, isTypeOnly }) =>
        !isTypeOnly &&
        (to.startsWith('@nestjs/') || to === 'rxjs') &&
        !NEST.includes(folderOf(file)),
    );

    expect(named(nest)).toEqual([]);
  });

  it.each(Object.entries(OWNED))('imports %s in its own folder only', (name, folder) => {
    const elsewhere = imports.filter(
      ({ file, to }) => to.startsWith(name) && folderOf(file) !== folder,
    );

    expect(named(elsewhere)).toEqual([]);
  });

  it('loads optional packages when they are used', () => {
    const eager = imports.filter(
      ({ to, isTypeOnly, isDynamic }) => OPTIONAL.test(to) && !isTypeOnly && !isDynamic,
    );

    expect(named(eager)).toEqual([]);
  });
});

describe('The files of test', () => {
  it('import an entry point, or the folder that they test', () => {
    const entries = entryPoints();
    const files = readdirSync(join(ROOT, 'test'), { recursive: true, encoding: 'utf8' })
      .filter((file) => /\.m?[jt]s$/.test(file))
      .map((file) => join('test', file));
    const deep = files.flatMap((file) =>
      importsOfTest(file)
        .filter((target) => !entries.includes(target))
        .filter((target) => file.split('/')[1] !== target.split('/')[1])
        .map(
          (target) =>
            `${file} imports ${target}: import an entry point, or move the test to test/${target.split('/')[1]}`,
        ),
    );

    expect(files.length).toBeGreaterThan(100);
    expect(deep).toEqual([]);
  });
});

describe('The files of lib', () => {
  it('import each other without a cycle', () => {
    const edges = new Map<string, string[]>();
    for (const { file, to, isTypeOnly } of internal) {
      if (!isTypeOnly) edges.set(file, [...(edges.get(file) ?? []), to]);
    }
    const done = new Set<string>();
    const cycles: string[] = [];
    const visit = (file: string, path: readonly string[]): void => {
      if (path.includes(file)) {
        cycles.push([...path.slice(path.indexOf(file)), file].join(' > '));
      } else if (!done.has(file)) {
        for (const next of edges.get(file) ?? []) visit(next, [...path, file]);
        done.add(file);
      }
    };
    for (const file of edges.keys()) visit(file, []);

    expect(cycles).toEqual([]);
  });
});
