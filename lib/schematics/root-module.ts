import { posix } from 'node:path';
import type { Tree } from '@angular-devkit/schematics';
import type { Source } from './source-text.js';

/** The source of the module that an application starts with. */
export interface RootModule {
  readonly source: Source;
  /** The name of its class, if the source declares it. */
  readonly name?: string | undefined;
}

interface NestProject {
  readonly sourceRoot?: string;
  readonly entryFile?: string;
}

const CREATED = /\bNestFactory\s*\.\s*create\w*\s*(?:<[^;()]*>)?\s*\(\s*(\w+)/;
const IMPORT = /\bimport\s+(?!type\s)([^'"`;]*?)\s*\bfrom\s*(['"] *['"])/g;

/** Finds the class that the entry file passes to Nest; otherwise the module in the place where Nest generates it. */
export function findRootModule(
  tree: Tree,
  sourceRoot: string,
  sources: readonly Source[],
): RootModule | undefined {
  const at = (path: string): Source | undefined => sources.find((one) => one.path === path);
  const entry = at(entryPath(tree, sourceRoot));
  const created = CREATED.exec(entry?.code ?? '')?.[1];
  if (entry !== undefined && created !== undefined) {
    const found = findClass(created, entry, sources);
    if (found !== undefined) return found;
  }
  const source = at(posix.join(sourceRoot, 'app.module.ts')) ?? onlyModuleBeside(entry, sources);
  return source && named(source, 'AppModule');
}

/** Nest adds the ending of the entry file itself. */
function entryPath(tree: Tree, sourceRoot: string): string {
  const root = posix.join(sourceRoot);
  let config: NestProject & { readonly projects?: Readonly<Record<string, NestProject>> } = {};
  try {
    config = JSON.parse(tree.readText('nest-cli.json')) as typeof config;
  } catch {
    // Without a configuration, the defaults apply.
  }
  const project = Object.values(config.projects ?? {}).find(
    (one) => one.sourceRoot !== undefined && posix.relative(one.sourceRoot, root) === '',
  );
  return posix.join(root, `${project?.entryFile ?? config.entryFile ?? 'main'}.ts`);
}

function findClass(
  local: string,
  entry: Source,
  sources: readonly Source[],
): RootModule | undefined {
  const imported = importOf(entry, local);
  const file = imported && resolveImport(imported.from, entry, sources);
  const name = imported === undefined ? local : imported.name;
  if (name === undefined) return file && { source: file };
  if (file !== undefined && declares(file, name)) return { source: file, name };
  // A file that exports it from another one, or an alias of a path.
  const [declaring, ...more] = sources.filter((one) => declares(one, name));
  if (declaring !== undefined && more.length === 0) return { source: declaring, name };
  return file && { source: file };
}

/**
 * Where a name of a source is imported from, except as a type.
 *
 * @returns `name` is the exported one; `undefined` for the default
 */
export function importOf(
  { code, content }: Source,
  local: string,
): { readonly from: string; readonly name: string | undefined } | undefined {
  for (const match of code.matchAll(IMPORT)) {
    const [all, clause = '', literal = ''] = match;
    const end = match.index + all.length;
    const from = content.slice(end - literal.length + 1, end - 1);
    const list = /\{([^}]*)\}/.exec(clause)?.[1] ?? '';
    for (const one of list.split(',')) {
      const [, name, alias = name] = /^\s*(\w+)(?:\s+as\s+(\w+))?\s*$/.exec(one) ?? [];
      if (alias === local) return { from, name: name === 'default' ? undefined : name };
    }
    if (/^\w+/.exec(clause)?.[0] === local) return { from, name: undefined };
  }
  return undefined;
}

function resolveImport(
  from: string,
  { path }: Source,
  sources: readonly Source[],
): Source | undefined {
  const target = from.startsWith('.') ? posix.join(posix.dirname(path), from) : from;
  const bare = target.replace(/\.[jt]s$/, '');
  return sources.find((one) => [`${bare}.ts`, `${bare}/index.ts`].includes(one.path));
}

function onlyModuleBeside(
  entry: Source | undefined,
  sources: readonly Source[],
): Source | undefined {
  if (entry === undefined) return undefined;
  const folder = posix.dirname(entry.path);
  const [only, ...more] = sources.filter(
    ({ path }) => path.endsWith('.module.ts') && posix.dirname(path) === folder,
  );
  return more.length === 0 ? only : undefined;
}

function named(source: Source, name: string): RootModule {
  return declares(source, name) ? { source, name } : { source };
}

function declares(source: Source, name: string): boolean {
  return endOfName(source, name) !== undefined;
}

function endOfName({ code }: Source, name: string): number | undefined {
  const match = new RegExp(`\\bclass\\s+${name}\\b`).exec(code);
  return match === null ? undefined : match.index + match[0].length;
}

/**
 * The part of the source with the decorator of the root module: a file may have several modules.
 *
 * @returns `undefined` if its class has no decorator
 */
export function decoratedPart({
  source,
  name,
}: RootModule): { readonly start: number; readonly end: number } | undefined {
  const end = name === undefined ? undefined : endOfName(source, name);
  if (end === undefined) return { start: 0, end: source.content.length };
  const start = source.code.lastIndexOf('@Module', end);
  return start === -1 ? undefined : { start, end };
}
