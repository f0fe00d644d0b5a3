import { randomBytes } from 'node:crypto';
import { posix } from 'node:path';
import type { Rule, SchematicContext, Tree } from '@angular-devkit/schematics';
import { MetadataManager } from '@nestjs/schematics';
import {
  ENVIRONMENT_COMMENT,
  EXAMPLE_ISSUER,
  JEST_ENTRIES,
  receiverFiles,
  TEST_ENVIRONMENT,
} from './generated-files.js';
import { decoratedPart, findRootModule, importOf } from './root-module.js';
import { type Source, sourcesBelow } from './source-text.js';

/** The options that `nest add` passes. */
export interface NestAddOptions {
  /** Default `src`. */
  readonly sourceRoot?: string | undefined;
  readonly skipInstall?: boolean | undefined;
}

interface Manifest {
  readonly type?: string;
  dependencies?: Record<string, string>;
  readonly devDependencies?: Record<string, string>;
  jest?: JestConfig;
}

interface JestConfig {
  transform?: Record<string, unknown>;
  transformIgnorePatterns?: readonly string[];
  readonly rootDir?: string;
  setupFiles?: readonly string[];
}

/** The project that is changed. */
interface Project {
  readonly tree: Tree;
  readonly logger: SchematicContext['logger'];
  readonly sourceRoot: string;
  readonly sources: readonly Source[];
  readonly manifest: Manifest;
  /** The packages of the manifest, with their versions. */
  readonly packages: Readonly<Record<string, string>>;
  /** Ends relative imports. */
  readonly extension: '.js' | '';
  /** The Jest configuration of the end-to-end tests: an application of a monorepo has its own. */
  readonly e2e: string;
}

const GUIDE =
  'https://github.com/nestjs-webhook-token/nestjs-webhook-token/blob/main/docs/guides/testing.md#jest-in-a-commonjs-project';
const CONFIG = '@nestjs/config';
const SECRET_BYTES = 32;
const E2E_JEST = 'test/jest-e2e.json';
const E2E_VITEST = 'vitest.config.e2e.ts';

/**
 * The schematic behind `nest add nestjs-webhook-token`: adds a receiver with a first handler and its test. It changes nothing in
 * an application that uses `WebhookModule` already.
 *
 * Imports only types of the schematics runtime, which is not a direct dependency of a Nest project.
 */
export default function nestAdd({
  sourceRoot = 'src',
  skipInstall = false,
}: NestAddOptions = {}): Rule {
  return (tree, context) => {
    const { logger } = context;
    const sources = sourcesBelow(tree.getDir(sourceRoot));
    const existing = sources.find(({ code }) => /\bWebhookModule\s*\.\s*forRoot/.test(code));
    if (existing !== undefined) {
      logger.info(`${existing.path} uses WebhookModule already; nothing was changed.`);
      return tree;
    }
    const manifest = readJson<Manifest>(tree, 'package.json');
    const packages = { ...manifest.devDependencies, ...manifest.dependencies };
    const extension = manifest.type === 'module' ? '.js' : '';
    const e2e = posix.join(posix.dirname(sourceRoot), E2E_JEST);
    const project = {
      tree,
      logger,
      sourceRoot,
      sources,
      manifest,
      packages,
      extension,
      e2e,
    } as const;
    for (const [name, content] of Object.entries(receiverFiles(extension))) {
      createFile(tree, `${sourceRoot}/webhooks/${name}`, content);
    }
    const isImported = importModule(project);
    const isNest11 = /^\D*11\b/.test(packages['@nestjs/common'] ?? '');
    // The Jest of a Nest 12 project loads ES modules: Nest 12 consists of them.
    if (isNest11 && extension === '') configureJest(project);
    setTestEnvironment(project);
    addDependencies(manifest, isNest11);
    writeJson(tree, 'package.json', manifest);
    writeEnvironment(project);
    warnOfModuleResolution(project);
    warnOfTypeScript(project);
    if (!skipInstall) {
      const options = { command: 'install', quiet: true, hideOutput: true };
      context.addTask({ toConfiguration: () => ({ name: 'node-package', options }) });
    }
    if (!isImported) return tree;
    logger.info(
      `Your application accepts webhooks at /webhooks, from WEBHOOK_ISSUER. Start it and try it:
  npx nestjs-webhook-token send http://localhost:3000/webhooks order.created '{"id":"o1","total":3}' --env-file .env`,
    );
    return tree;
  };
}

function createFile(tree: Tree, path: string, content: string): void {
  if (tree.exists(path)) {
    throw new Error(`${path} exists, so nothing was changed. Rename it and run this again.`);
  }
  tree.create(path, content);
}

/**
 * Adds the module to the root module, or says what to add.
 *
 * @returns whether the root module was changed
 */
function importModule({ tree, logger, sourceRoot, sources, extension }: Project): boolean {
  const root = findRootModule(tree, sourceRoot, sources);
  const isConfigured = sources.some(({ code }) => /\bConfigModule\s*\.\s*forRoot/.test(code));
  const module = posix.join(sourceRoot, 'webhooks/webhooks.module');
  const modules = [
    ...(isConfigured
      ? []
      : [{ name: 'ConfigModule', alias: 'NestConfigModule', call: '.forRoot()', from: CONFIG }]),
    { name: 'WebhooksModule', alias: 'WebhookReceiverModule', call: '', from: `${module}.ts` },
  ];
  const sayWhatToAdd = (problem: string): false => {
    const symbols = modules.map(({ name, call }) => name + call).join(' and ');
    const places = modules.map(({ from }) => from).join(' and ');
    logger.warn(
      `${problem}, so your application accepts no webhooks yet. Add ${symbols} to the imports of your root module, from ${places}.`,
    );
    return false;
  };
  if (root === undefined) return sayWhatToAdd(`No root module was found below ${sourceRoot}`);

  const { path, content, code } = root.source;
  const cannotBeChanged = `${path} cannot be changed: it has no @Module() with a list of imports`;
  const part = decoratedPart(root);
  if (part === undefined) return sayWhatToAdd(cannotBeChanged);
  let decorated = content.slice(part.start, part.end);
  const lines: string[] = [];
  const target = `./${posix.relative(posix.dirname(path), module)}`.replace('./../', '../');
  for (const { name, alias, call, from } of modules) {
    const isThere = from === CONFIG && importOf(root.source, name)?.from === CONFIG;
    // The application may have a module of its own with this name.
    const isTaken = !isThere && new RegExp(`\\b${name}\\b`).test(code);
    const local = isTaken ? alias : name;
    const changed = new MetadataManager(decorated).insert('imports', local + call) ?? decorated;
    if (changed === decorated) return sayWhatToAdd(cannotBeChanged);
    decorated = changed;
    const specifier = from === CONFIG ? CONFIG : `${target}${extension}`;
    const imported = isTaken ? `${name} as ${alias}` : name;
    if (!isThere) lines.push(`import { ${imported} } from '${specifier}';`);
  }
  const whole = content.slice(0, part.start) + decorated + content.slice(part.end);
  const position = endOfImports(whole);
  const inserted = position === 0 ? `${lines.join('\n')}\n` : `\n${lines.join('\n')}`;
  tree.overwrite(path, `${whole.slice(0, position)}${inserted}${whole.slice(position)}`);
  return true;
}

/** An import, after comments and white space. */
const IMPORT =
  /(?:\s|\/\/.*|\/\*[^]*?\*\/)*import\s(?:[^'";]*\sfrom\s)?\s*['"][^'"\n]*['"](?:\s*with\s*\{[^}]*\})?;?[ \t]*/y;

/** The position behind the imports at the beginning of a source; 0 if there are none. */
function endOfImports(source: string): number {
  let end = 0;
  for (IMPORT.lastIndex = 0; IMPORT.test(source);) end = IMPORT.lastIndex;
  return end;
}

function addDependencies(manifest: Manifest, isNest11: boolean): void {
  const added = Object.entries({
    '@nestjs/config': isNest11 ? '^4.0.0' : '^12.0.0',
    'class-transformer': '^0.5.1',
    'class-validator': '^0.15.0',
  }).filter(([name]) => !Object.hasOwn(manifest.dependencies ?? {}, name));
  manifest.dependencies = Object.fromEntries(
    [...Object.entries(manifest.dependencies ?? {}), ...added].sort(([a], [b]) => (a < b ? -1 : 1)),
  );
}

/** Tests that import the root module load this package from now on. */
function configureJest({ tree, logger, manifest, packages, e2e }: Project): void {
  if (!Object.hasOwn(packages, 'jest')) return;
  const withEntries = (config: JestConfig): JestConfig => {
    const { transform, ...entries } = JEST_ENTRIES;
    const patterns = entries.transformIgnorePatterns;
    if (String(config.transformIgnorePatterns ?? patterns) !== String(patterns)) {
      logger.warn(`Jest has transformIgnorePatterns already: extend them as ${GUIDE} says.`);
      return config;
    }
    // Without ts-jest, the transform of the project compiles the packages too.
    if (!Object.hasOwn(packages, 'ts-jest')) return { ...config, ...entries };
    // The first matching pattern applies, so the new one precedes.
    return { ...config, ...entries, transform: { ...transform, ...config.transform } };
  };
  if (manifest.jest === undefined) {
    logger.warn(`The Jest configuration is not in package.json: change it as ${GUIDE} says.`);
  } else {
    manifest.jest = withEntries(manifest.jest);
  }
  if (tree.exists(e2e)) {
    writeJson(tree, e2e, withEntries(readJson<JestConfig>(tree, e2e)));
  }
}

/** A list of set-up files, up to the end of its last literal. */
const SETUP_FILES = /\bsetupFiles:\s*\[\s*(?:['"].+?['"],\s*)*['"].+?['"]/;

/** End-to-end tests import the root module, so they would fail in a clone without `.env`. */
function setTestEnvironment({ tree, logger, e2e }: Project): void {
  const tests = posix.dirname(e2e);
  const environment = `${tests}/webhooks.env.ts`;
  // In a workspace with Vitest, Nest still generates a configuration of Jest for each application.
  if (tree.exists(E2E_VITEST)) {
    const config = tree.readText(E2E_VITEST);
    const file = `./${environment}`;
    const addFile = (): string =>
      config.includes('setupFiles')
        ? config.replace(SETUP_FILES, `$&, '${file}'`)
        : config.replace('test: {', `test: {\n    setupFiles: ['${file}'],`);
    const changed = config.includes(file) ? config : addFile();
    if (!changed.includes(file)) {
      logger.warn(
        `${E2E_VITEST} cannot be changed: set WEBHOOK_ISSUER and WEBHOOK_SECRET in its setupFiles, or end-to-end tests need .env.`,
      );
      return;
    }
    tree.overwrite(E2E_VITEST, changed);
  } else if (tree.exists(e2e)) {
    const config = readJson<JestConfig>(tree, e2e);
    const root = posix.join(tests, config.rootDir ?? '.');
    const file = `<rootDir>/${posix.relative(root, environment)}`;
    const setupFiles = [...new Set([...(config.setupFiles ?? []), file])];
    writeJson(tree, e2e, { ...config, setupFiles });
  } else {
    return;
  }
  if (!tree.exists(environment)) tree.create(environment, TEST_ENVIRONMENT);
}

/**
 * Writes a generated secret only to a file that is not committed. An application of a monorepo runs with the .env of the
 * workspace.
 */
function writeEnvironment({ tree, logger, sourceRoot }: Project): void {
  append(tree, '.env.example', { WEBHOOK_ISSUER: EXAMPLE_ISSUER, WEBHOOK_SECRET: '' });
  // Below the comment, the secret is one that this schematic has generated.
  const [foreign = ''] = textOf(tree, '.env').split(ENVIRONMENT_COMMENT);
  if (hasVariable(foreign, 'WEBHOOK_SECRET')) {
    logger.warn(
      `.env has a WEBHOOK_SECRET already, so none was generated. If it belongs to another product, use another variable in ${sourceRoot}/webhooks/webhooks.module.ts, and set it to the output of: npx nestjs-webhook-token keygen`,
    );
  }
  const rules = textOf(tree, '.gitignore').match(/^!?(?:\*\*)?\/?\.env\*?[ \t]*\r?$/gm);
  // The last matching rule applies.
  if (rules?.at(-1)?.startsWith('!') === false) {
    append(tree, '.env', {
      WEBHOOK_ISSUER: EXAMPLE_ISSUER,
      WEBHOOK_SECRET: randomBytes(SECRET_BYTES).toString('base64'),
    });
  } else {
    logger.warn(
      '.gitignore does not ignore .env, so no secret was written. Ignore .env, copy .env.example to it, and set WEBHOOK_SECRET to the output of: npx nestjs-webhook-token keygen',
    );
  }
}

/** Appends the variables that a file does not have. */
function append(tree: Tree, path: string, variables: Readonly<Record<string, string>>): void {
  const before = textOf(tree, path);
  const missing = Object.entries(variables).filter(([name]) => !hasVariable(before, name));
  if (missing.length === 0) return;
  const assignments = missing.map(([name, value]) => `${name}=${value}`);
  const lines = [ENVIRONMENT_COMMENT, ...assignments, ''].join('\n');
  const gap = before === '' ? '' : before.endsWith('\n') ? '\n' : '\n\n';
  if (tree.exists(path)) tree.overwrite(path, `${before}${gap}${lines}`);
  else tree.create(path, lines);
}

function hasVariable(environment: string, name: string): boolean {
  return new RegExp(`^(?:export )?${name}\\s*=`, 'm').test(environment);
}

function warnOfModuleResolution({ tree, logger }: Project): void {
  const config = textOf(tree, 'tsconfig.json');
  if (/"module(?:Resolution)?"\s*:\s*"(?:node(?:next|1[68]|20)|bundler)"/i.test(config)) return;
  logger.warn(
    'tsconfig.json needs "module": "nodenext", or "moduleResolution": "bundler" with an ES module target, to find nestjs-webhook-token/testing.',
  );
}

/** Since 5.8, `module: nodenext` allows a CommonJS project to import an ES module. */
const OLD_TYPESCRIPT = /^(?:[~^]?[1-4]\b|~?5\.[0-7]\b)/;

function warnOfTypeScript({ tree, logger, manifest }: Project): void {
  const installed = 'node_modules/typescript/package.json';
  const version = tree.exists(installed)
    ? readJson<{ readonly version: string }>(tree, installed).version
    : { ...manifest.dependencies, ...manifest.devDependencies }['typescript'];
  if (version === undefined || !OLD_TYPESCRIPT.test(version)) return;
  logger.warn(
    `TypeScript ${version} is too old: nestjs-webhook-token needs 5.8 or later. Install a newer one: npm install -D typescript@5.9`,
  );
}

function textOf(tree: Tree, path: string): string {
  return tree.exists(path) ? tree.readText(path) : '';
}

function readJson<T>(tree: Tree, path: string): T {
  try {
    return JSON.parse(tree.readText(path)) as T;
  } catch {
    throw new Error(
      `${path} is not plain JSON, so nothing was changed. Remove its comments and trailing commas, and run this again.`,
    );
  }
}

function writeJson(tree: Tree, path: string, value: unknown): void {
  tree.overwrite(path, `${JSON.stringify(value, undefined, 2)}\n`);
}
