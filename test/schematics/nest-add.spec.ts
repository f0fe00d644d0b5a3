import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { ROOT } from '../docs/documents.js';
import { SnippetCompiler } from '../docs/snippet-compiler.js';

const APP_MODULE = `import { Module } from '@nestjs/common';
import { AppService } from './app.service.js';

@Module({
  imports: [],
  providers: [AppService],
})
export class AppModule {}
`;

const NEST_12 = {
  type: 'module',
  dependencies: { '@nestjs/common': '^12.0.1' },
  devDependencies: { vitest: '^4.0.0' },
};
const NEST_11 = {
  dependencies: { '@nestjs/common': '^11.0.1' },
  devDependencies: { jest: '^30.0.0', 'ts-jest': '^29.2.5' },
  jest: { rootDir: 'src', transform: { '^.+\\.(t|j)s$': 'ts-jest' } },
};

type Files = Readonly<Record<string, string>>;

interface Added {
  readonly files: Files;
  /** The messages. */
  readonly said: string;
  readonly tasks: readonly string[];
}

function project(files: Files = {}): Files {
  return {
    'package.json': JSON.stringify(NEST_12),
    'tsconfig.json': '{ "compilerOptions": { "module": "nodenext" } }',
    '.gitignore': 'node_modules\n.env\n',
    'src/app.module.ts': APP_MODULE,
    ...files,
  };
}

function json(content: string | undefined): Record<string, Record<string, unknown>> {
  return JSON.parse(content!) as Record<string, Record<string, unknown>>;
}

describe('nest add nestjs-webhook-token', () => {
  let schematic: ChildProcess;
  beforeAll(() => {
    schematic = fork(join(ROOT, 'test/schematics/schematic.process.mjs'));
  });
  afterAll(() => void schematic.kill());

  async function add(files: Files, options: object = {}): Promise<Added> {
    schematic.send({ files, options });
    const [result] = (await once(schematic, 'message')) as [Added & { error?: string }];
    if (result.error !== undefined) throw new Error(result.error);
    return result;
  }

  it('adds a receiver, its test, its packages and a secret that git ignores', async () => {
    const { files, tasks } = await add(project());

    expect(files['src/app.module.ts']).toBe(
      APP_MODULE.replace(
        "service.js';",
        `service.js';
import { ConfigModule } from '@nestjs/config';
import { WebhooksModule } from './webhooks/webhooks.module.js';`,
      ).replace('imports: []', 'imports: [ConfigModule.forRoot(), WebhooksModule]'),
    );
    expect(Object.keys(files)).toEqual(
      expect.arrayContaining([
        'src/webhooks/webhooks.module.ts',
        'src/webhooks/order.webhooks.ts',
        'src/webhooks/order.webhooks.spec.ts',
      ]),
    );
    expect(Object.keys(json(files['package.json'])['dependencies']!)).toEqual([
      '@nestjs/common',
      '@nestjs/config',
      'class-transformer',
      'class-validator',
    ]);
    expect(files['.env']).toMatch(/^WEBHOOK_SECRET=[\w+/]{43}=$/m);
    expect(files['.env.example']).toMatch(/^WEBHOOK_SECRET=$/m);
    expect(tasks).toEqual(['node-package']);
  });

  it('adds a test that compiles once the event has a type', async () => {
    const { files } = await add(project());
    const document = 'src/webhooks/order.webhooks.spec.ts';
    const typed = `declare module 'nestjs-webhook-token' {
  interface WebhookEventMap { 'order.created': { id: string; total: number } }
}
`;
    const code = files[document]!.replace(
      /import \{ (\w+) \} from '(?:@nestjs\/config|\.\/webhooks\.module\.js)';/g,
      'declare class $1 {}',
    );

    const errors = new SnippetCompiler().check([
      { document, code: typed + code, language: 'ts', line: 0 },
    ]);

    expect(errors).toEqual([]);
  });

  it('changes nothing the second time, and says so', async () => {
    const once = await add(project());
    const twice = await add(once.files);

    expect(twice.files).toEqual(once.files);
    expect(twice.said).toMatch(/uses WebhookModule already; nothing was changed/);
    expect(twice.tasks).toEqual([]);
  });

  it.each([
    ['a comment', '// TODO: WebhookModule.forRoot and ConfigModule.forRoot()'],
    ['a comment of lines', '/*\n * WebhookModule.forRoot, ConfigModule.forRoot() */'],
    ['a string', 'const HINT = "It\'s WebhookModule.forRoot, ConfigModule.forRoot()";'],
    ['a template', 'const HINT = `${1} // WebhookModule.forRoot, ConfigModule.forRoot()`;'],
    ['a regular expression', "const QUOTE = /'/; // WebhookModule.forRoot 'ConfigModule.forRoot'"],
  ])('takes no module that only %s names for one that is used', async (_, text) => {
    const content = APP_MODULE.replace('@Module', `${text}\n@Module`);
    const { files } = await add(project({ 'src/app.module.ts': content }));

    expect(files['src/app.module.ts']).toContain(
      'imports: [ConfigModule.forRoot(), WebhooksModule]',
    );
  });

  it('finds modules behind texts that look like comments', async () => {
    const content = APP_MODULE.replace(
      '[]',
      "[Http.to('https://shop.example'), ConfigModule.forRoot()]",
    );
    const { files } = await add(project({ 'src/app.module.ts': content }));

    expect(files['src/app.module.ts']).toContain('ConfigModule.forRoot(), WebhooksModule]');
  });

  it('reads only the sources of an application in the folder of the workspace', async () => {
    const { 'src/app.module.ts': content, ...files } = project();
    const { files: after } = await add(
      {
        ...files,
        'app.module.ts': content!,
        'node_modules/a/index.d.ts': 'WebhookModule.forRoot();',
        '.cache/a.ts': 'ConfigModule.forRoot();',
      },
      { sourceRoot: '.' },
    );

    expect(after['app.module.ts']).toContain('imports: [ConfigModule.forRoot(), WebhooksModule]');
    expect(after).toHaveProperty(['webhooks/webhooks.module.ts']);
  });

  it('keeps the configuration, packages and variables that are there', async () => {
    const { files } = await add(
      project({
        'package.json': JSON.stringify({
          ...NEST_12,
          dependencies: { '@nestjs/common': '^12.0.1', '@nestjs/config': '^4.0.4' },
        }),
        'src/app.module.ts': APP_MODULE.replace(
          '[]',
          '[\n    ConfigModule.forRoot({ isGlobal: true }),\n  ]',
        ),
        '.env': 'WEBHOOK_ISSUER=https://me.example\nWEBHOOK_SECRET=mine',
        '.env.example': 'PORT=3000',
      }),
    );

    expect(files['src/app.module.ts']).toContain(
      '[\n    ConfigModule.forRoot({ isGlobal: true }),\n    WebhooksModule,\n  ]',
    );
    expect(json(files['package.json'])['dependencies']).toMatchObject({
      '@nestjs/config': '^4.0.4',
    });
    expect(files['.env']).toBe('WEBHOOK_ISSUER=https://me.example\nWEBHOOK_SECRET=mine');
    expect(files['.env.example']).toMatch(/^PORT=3000\n\n# Webhooks/);
  });

  it('adds the issuer to the secret of another product, and warns about that secret', async () => {
    const { files, said } = await add(project({ '.env': 'WEBHOOK_SECRET=whsec_mine\n' }));

    expect(files['.env']).toBe(
      'WEBHOOK_SECRET=whsec_mine\n\n# Webhooks: their sender, and the secret that both sides share\nWEBHOOK_ISSUER=https://shop.example\n',
    );
    expect(said).toMatch(/\.env has a WEBHOOK_SECRET already.*src\/webhooks\/webhooks\.module\.ts/);
    expect(said).not.toContain('whsec_mine');
    const again = await add(project({ '.env': files['.env']! }));
    expect(again.said).toBe(said);
  });

  it.each<[string, boolean]>([
    ['node_modules\n', false],
    ['!.env\n', false],
    ['.env\n!.env\n', false],
    ['.env*\n!/.env\n', false],
    ['.env*\n!.env.example\n', true],
    ['!.env\n/.env\r\n', true],
  ])('with %j in .gitignore, writes a secret: %s', async (gitignore, isIgnored) => {
    const { files, said } = await add(project({ '.gitignore': gitignore }));

    expect(Object.hasOwn(files, '.env')).toBe(isIgnored);
    expect(/no secret was written.*keygen/.test(said)).toBe(!isIgnored);
  });

  const WORKER_MAIN = `import { NestFactory } from '@nestjs/core';
import { WorkerModule } from './worker.module';

async function bootstrap() {
  // Was NestFactory.create(AppModule).
  const app = await NestFactory.create<NestExpressApplication>(WorkerModule);
  await app.listen(process.env.port ?? 3000);
}
`;
  const WORKER_MODULE = APP_MODULE.replace('AppModule', 'WorkerModule');
  const ADDED = 'imports: [ConfigModule.forRoot(), WebhooksModule]';

  it.each<[string, string, Files, object?]>([
    [
      'of an application that Nest added to a workspace',
      'apps/worker/src/worker.module.ts',
      { 'apps/worker/src/main.ts': WORKER_MAIN },
      { sourceRoot: 'apps/worker/src' },
    ],
    [
      'of an entry file with another name',
      'apps/worker/src/worker.module.ts',
      {
        'apps/worker/src/start.ts': WORKER_MAIN,
        'apps/worker/src/app.module.ts': APP_MODULE,
        'nest-cli.json': JSON.stringify({
          entryFile: 'main',
          projects: { worker: { sourceRoot: './apps/worker/src', entryFile: 'start' } },
        }),
      },
      { sourceRoot: 'apps/worker/src/' },
    ],
    [
      'in a folder of its own',
      'src/app/worker.module.ts',
      { 'src/main.ts': WORKER_MAIN.replace('./worker.module', './app/worker.module.js') },
    ],
    [
      'behind an alias of its path and a list of exports',
      'src/app/worker.module.ts',
      { 'src/main.ts': WORKER_MAIN.replace('./worker.module', '@app') },
    ],
    [
      'imported under another name',
      'src/worker.module.ts',
      {
        'src/main.ts': WORKER_MAIN.replace('{ Worker', '{ WorkerModule as Root').replaceAll(
          '(WorkerModule',
          '(RootModule',
        ),
        'src/app.module.ts': APP_MODULE,
      },
    ],
    [
      'that is the only one beside an entry file that names none',
      'src/worker.module.ts',
      { 'src/main.ts': "import './bootstrap';", 'src/orders/orders.module.ts': APP_MODULE },
    ],
  ])('adds to the root module %s', async (_, path, more, options = {}) => {
    const { 'src/app.module.ts': _app, ...base } = project();
    const { files, said } = await add({ ...base, [path]: WORKER_MODULE, ...more }, options);
    const changed = Object.keys(files).filter((one) => files[one]!.includes(ADDED));

    expect(changed).toEqual([path]);
    const folder = path.includes('/app/') ? '../webhooks' : './webhooks';
    expect(files[path]).toContain(`import { WebhooksModule } from '${folder}/webhooks.module.js';`);
    expect(said).toContain('Your application accepts webhooks at /webhooks');
  });

  it('adds to the root module in a file with others', async () => {
    const content = `import { Module } from '@nestjs/common';

@Module({ imports: [] })
class CoreModule {}

@Module({ imports: [CoreModule] })
export class AppModule {}

@Module(METADATA)
class OtherModule {}
`;
    const { files } = await add(project({ 'src/app.module.ts': content }));
    const main = WORKER_MAIN.replaceAll('WorkerModule', 'OtherModule').replace('worker', 'app');
    const other = await add(project({ 'src/app.module.ts': content, 'src/main.ts': main }));

    expect(files['src/app.module.ts']).toContain(
      '@Module({ imports: [CoreModule, ConfigModule.forRoot(), WebhooksModule] })\nexport',
    );
    expect(other.files['src/app.module.ts']).toBe(content);
  });

  it('takes no module of the application for its own', async () => {
    const content = APP_MODULE.replace(
      '@Module',
      "import { WebhooksModule } from './hooks/webhooks.module.js';\nimport { ConfigModule } from './config.js';\n@Module",
    ).replace('[]', '[WebhooksModule, ConfigModule]');
    const { files } = await add(project({ 'src/app.module.ts': content }));

    expect(files['src/app.module.ts']).toContain(
      '[WebhooksModule, ConfigModule, NestConfigModule.forRoot(), WebhookReceiverModule]',
    );
    expect(files['src/app.module.ts']).toContain(
      "import { ConfigModule as NestConfigModule } from '@nestjs/config';\nimport { WebhooksModule as WebhookReceiverModule } from './webhooks/webhooks.module.js';",
    );
  });

  it('adds to a root module that has the name of the added one', async () => {
    const path = 'apps/webhooks/src/webhooks.module.ts';
    const { files } = await add(
      project({
        [path]: APP_MODULE.replace('AppModule', 'WebhooksModule'),
        'apps/webhooks/src/main.ts': WORKER_MAIN.replaceAll('WorkerModule', 'WebhooksModule'),
      }),
      { sourceRoot: 'apps/webhooks/src' },
    );

    expect(files[path]).toContain('imports: [ConfigModule.forRoot(), WebhookReceiverModule]');
    expect(files[path]).toContain("from './webhooks/webhooks.module.js'");
  });

  it('says that it found no root module', async () => {
    const { 'src/app.module.ts': _, ...files } = project();
    const { said } = await add(files);

    expect(said).toMatch(
      /No root module was found below src, .*Add ConfigModule\.forRoot\(\) and WebhooksModule to the imports of your root module, from @nestjs\/config and src\/webhooks\/webhooks\.module\.ts/,
    );
    expect(said).not.toContain('Your application accepts webhooks at');
  });

  it.each([
    ['has no module', 'export const AppModule = createModule();\n'],
    ['imports a variable', APP_MODULE.replace('[]', 'IMPORTS')],
    ['computes its imports', APP_MODULE.replace('[]', '[A, B].filter(Boolean)')],
    ['has another decorator', APP_MODULE.replace('@Module', '@nest.Module')],
  ])('names the import to add if the root module %s', async (_, content) => {
    const { files, said } = await add(project({ 'src/app.module.ts': content }));

    expect(said).toMatch(/Add ConfigModule\.forRoot\(\) and WebhooksModule to the imports/);
    expect(said).not.toContain('Your application accepts webhooks at');
    expect(files['src/app.module.ts']).toBe(content);
    expect(files).toHaveProperty(['src/webhooks/webhooks.module.ts']);
  });

  it.each([
    ['a comment names ConfigModule', '// Without ConfigModule.\n\n@Module('],
    ['a template contains an import', "const EXAMPLE = `\nimport a from 'a';\n`;\n\n@Module("],
  ])('adds its imports to those at the beginning although %s', async (_, beginning) => {
    const content = APP_MODULE.replace('@Module(', beginning);
    const { files } = await add(project({ 'src/app.module.ts': content }));

    expect(files['src/app.module.ts']).toContain(`import { AppService } from './app.service.js';
import { ConfigModule } from '@nestjs/config';
import { WebhooksModule } from './webhooks/webhooks.module.js';

`);
  });

  it('adds its imports behind one with attributes and comments between', async () => {
    const before = "/* Read at start-up. */\nimport data from './data.json' with { type: 'json' };";
    const content = APP_MODULE.replace("service.js';", `service.js';\n${before}`);
    const { files } = await add(project({ 'src/app.module.ts': content }));

    expect(files['src/app.module.ts']).toContain(
      `${before}\nimport { ConfigModule } from '@nestjs/config';`,
    );
  });

  it('refuses to overwrite a file', async () => {
    const files = project({ 'src/webhooks/order.webhooks.ts': '// mine' });

    await expect(add(files)).rejects.toThrow(
      'src/webhooks/order.webhooks.ts exists, so nothing was changed',
    );
  });

  it('prepares Jest in a CommonJS project, and imports without an extension', async () => {
    const { files } = await add(
      project({
        'package.json': JSON.stringify(NEST_11),
        'test/jest-e2e.json': JSON.stringify(NEST_11.jest),
      }),
    );
    const { jest, dependencies } = json(files['package.json']);

    for (const config of [jest, json(files['test/jest-e2e.json'])]) {
      expect(config).toMatchObject({
        transformIgnorePatterns: [expect.stringContaining('nestjs-webhook-token')],
      });
      const [ignored] = config!['transformIgnorePatterns'] as [string];
      const isTransformed = (path: string): boolean => !new RegExp(ignored).test(path);
      const pnpm = '/app/node_modules/.pnpm/a@1.0.0/node_modules';
      expect(isTransformed('/app/node_modules/nestjs-webhook-token/dist/index.js')).toBe(true);
      expect(isTransformed(`${pnpm}/nestjs-webhook-token/dist/index.js`)).toBe(true);
      expect(isTransformed('/app/node_modules/express/index.js')).toBe(false);
      expect(isTransformed(`${pnpm}/express/index.js`)).toBe(false);
      // The first matching pattern applies.
      expect(Object.entries(config!['transform']!)).toEqual([
        ['/node_modules/.+\\.js$', ['ts-jest', expect.objectContaining({ useESM: true })]],
        ['^.+\\.(t|j)s$', 'ts-jest'],
      ]);
    }
    expect(dependencies).toMatchObject({ '@nestjs/config': '^4.0.0' });
    expect(files['src/app.module.ts']).toContain("'./webhooks/webhooks.module'");
  });

  it('keeps the transforms of Jest in a CommonJS project of Nest 12, which loads ES modules', async () => {
    const { files, said } = await add(
      project({
        'package.json': JSON.stringify({ ...NEST_11, dependencies: NEST_12.dependencies }),
        'test/jest-e2e.json': JSON.stringify(NEST_11.jest),
      }),
    );

    expect(json(files['package.json'])['jest']).toEqual(NEST_11.jest);
    expect(json(files['test/jest-e2e.json'])).toEqual({
      ...NEST_11.jest,
      setupFiles: [expect.stringContaining('webhooks.env.ts')],
    });
    expect(said).not.toContain('Jest');
  });

  it('lets another transform of Jest compile the package if ts-jest is not installed', async () => {
    const transform = { '^.+\\.(t|j)s?$': ['@swc/jest'] };
    const devDependencies = { jest: '^30.0.0', '@swc/jest': '^0.2.39' };
    const { files } = await add(
      project({
        'package.json': JSON.stringify({ ...NEST_11, devDependencies, jest: { transform } }),
        'test/jest-e2e.json': JSON.stringify({ transform }),
      }),
    );

    for (const config of [json(files['package.json'])['jest'], json(files['test/jest-e2e.json'])]) {
      expect(config).toMatchObject({
        transformIgnorePatterns: [expect.stringContaining('nestjs-webhook-token')],
      });
      expect(config!['transform']).toEqual(transform);
    }
  });

  it.each([
    ['.', '<rootDir>/webhooks.env.ts'],
    ['..', '<rootDir>/test/webhooks.env.ts'],
  ])('sets test values for the end-to-end tests of Jest below %s', async (rootDir, path) => {
    const { files } = await add(
      project({
        'package.json': JSON.stringify(NEST_11),
        'test/jest-e2e.json': JSON.stringify({ rootDir, setupFiles: ['./mine.ts'] }),
      }),
    );

    expect(json(files['test/jest-e2e.json'])['setupFiles']).toEqual(['./mine.ts', path]);
    expect(files['test/webhooks.env.ts']).toContain('process.env.WEBHOOK_SECRET ??=');
  });

  const VITEST = 'export default defineConfig({\n  test: {\n    globals: true,\n  },\n});\n';
  const vitest = (setupFiles: string): string =>
    VITEST.replace('globals', `setupFiles: ${setupFiles},\n    globals`);

  it.each([
    ['no list', VITEST, "['./test/webhooks.env.ts']"],
    ['a list', vitest("['./a.ts', './b.ts']"), "['./a.ts', './b.ts', './test/webhooks.env.ts']"],
    ['a long list', vitest("[\n'./a.ts',\n]"), "[\n'./a.ts', './test/webhooks.env.ts',\n]"],
  ])('sets test values for Vitest with %s of set-up files', async (_, config, setupFiles) => {
    const { files, said } = await add(project({ 'vitest.config.e2e.ts': config }));

    expect(files['vitest.config.e2e.ts']).toBe(vitest(setupFiles));
    expect(files['test/webhooks.env.ts']).toContain('process.env.WEBHOOK_ISSUER ??=');
    expect(said).not.toContain('setupFiles');
  });

  it.each(["'./mine.ts'", '[]', 'mine'])(
    'names the test values to set if the set-up files of Vitest are %s',
    async (setupFiles) => {
      const config = vitest(setupFiles);
      const { files, said } = await add(project({ 'vitest.config.e2e.ts': config }));

      expect(files['vitest.config.e2e.ts']).toBe(config);
      expect(files).not.toHaveProperty(['test/webhooks.env.ts']);
      expect(said).toMatch(/set WEBHOOK_ISSUER and WEBHOOK_SECRET in its setupFiles/);
    },
  );

  it('sets test values where a workspace runs Vitest, although its applications have a file for Jest', async () => {
    const jest = JSON.stringify(NEST_11.jest);
    const shop = await add(
      project({
        'vitest.config.e2e.ts': VITEST,
        'apps/shop/src/app.module.ts': APP_MODULE,
        'apps/shop/test/jest-e2e.json': jest,
        'apps/crm/src/app.module.ts': APP_MODULE,
      }),
      { sourceRoot: 'apps/shop/src' },
    );
    const { files } = await add(shop.files, { sourceRoot: 'apps/crm/src' });

    expect(files['apps/shop/test/jest-e2e.json']).toBe(jest);
    expect(files['vitest.config.e2e.ts']).toBe(
      vitest("['./apps/shop/test/webhooks.env.ts', './apps/crm/test/webhooks.env.ts']"),
    );
  });

  it('prepares the end-to-end tests of an application in a monorepo', async () => {
    const { files } = await add(
      project({
        'package.json': JSON.stringify(NEST_11),
        'apps/shop/src/app.module.ts': APP_MODULE,
        'apps/shop/test/jest-e2e.json': JSON.stringify({ rootDir: '.' }),
      }),
      { sourceRoot: 'apps/shop/src' },
    );

    expect(json(files['apps/shop/test/jest-e2e.json'])).toMatchObject({
      setupFiles: ['<rootDir>/webhooks.env.ts'],
      transformIgnorePatterns: [expect.stringContaining('nestjs-webhook-token')],
    });
    expect(files).toHaveProperty(['apps/shop/test/webhooks.env.ts']);
  });

  it.each<[string, Files]>([
    [
      'Jest',
      {
        'package.json': JSON.stringify(NEST_11),
        'test/jest-e2e.json': JSON.stringify(NEST_11.jest),
      },
    ],
    ['Vitest', { 'vitest.config.e2e.ts': VITEST }],
  ])('finishes what was removed in part, and keeps its own entries for %s', async (_, config) => {
    const first = await add(project(config));
    const rest = Object.entries(first.files).filter(([path]) => !path.startsWith('src/'));
    const second = await add({ ...Object.fromEntries(rest), 'src/app.module.ts': APP_MODULE });

    expect(second.files).toEqual(first.files);
    expect(second.said).toBe(first.said);
  });

  it('prepares the second application of a monorepo without a warning', async () => {
    const first = await add(
      project({
        'package.json': JSON.stringify(NEST_11),
        'apps/crm/src/app.module.ts': APP_MODULE,
      }),
    );
    const second = await add(first.files, { sourceRoot: 'apps/crm/src' });

    expect(second.said).toBe(first.said);
  });

  it('names a configuration with comments, which it would lose', async () => {
    const files = project({ 'test/jest-e2e.json': '{\n  // Slow.\n  "rootDir": "."\n}' });

    await expect(add(files)).rejects.toThrow(
      /^test\/jest-e2e\.json is not plain JSON, so nothing was changed\. Remove its comments/,
    );
  });

  it('names what it cannot change: other Jest configurations, an old module resolution', async () => {
    const { said } = await add(
      project({
        'package.json': JSON.stringify({ ...NEST_11, jest: undefined }),
        'test/jest-e2e.json': '{ "transformIgnorePatterns": [] }',
        'tsconfig.json': '{ "compilerOptions": { "module": "commonjs" } }',
      }),
    );

    expect(said).toMatch(/Jest configuration is not in package\.json/);
    expect(said).toMatch(/Jest has transformIgnorePatterns already/);
    expect(said).toMatch(/tsconfig\.json needs "module": "nodenext"/);
  });

  it.each<[string, string | undefined, boolean]>([
    ['~5.7.3', undefined, true],
    ['^4.9.5', undefined, true],
    ['^5.7.3', undefined, false],
    ['^5.7.3', '5.7.3', true],
    ['^5.7.3', '5.9.2', false],
    ['~5.8.0', undefined, false],
    ['^6.0.0', undefined, false],
  ])(
    'with TypeScript %s, installed %s: warns of an old version: %s',
    async (range, version, old) => {
      const manifest = {
        ...NEST_11,
        devDependencies: { ...NEST_11.devDependencies, typescript: range },
      };
      const { said } = await add(
        project({
          'package.json': JSON.stringify(manifest),
          ...(version && { 'node_modules/typescript/package.json': JSON.stringify({ version }) }),
        }),
      );

      expect(said.includes('nestjs-webhook-token needs 5.8 or later')).toBe(old);
    },
  );

  it('adds to another source root, and installs nothing with skipInstall', async () => {
    const { files, tasks } = await add(project({ 'apps/crm/src/app.module.ts': APP_MODULE }), {
      sourceRoot: 'apps/crm/src',
      skipInstall: true,
    });

    expect(files['apps/crm/src/app.module.ts']).toContain('WebhooksModule');
    expect(files['src/app.module.ts']).toBe(APP_MODULE);
    expect(tasks).toEqual([]);
  });
});
