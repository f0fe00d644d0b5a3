import { join } from 'node:path';
import ts from 'typescript';
import { ROOT } from './documents.js';
import type { CodeBlock } from './markdown.js';

/** A TypeScript block of a page. */
export interface Snippet extends CodeBlock {
  /** The page's path. */
  readonly document: string;
}

/**
 * What a snippet may use without declaring it. It is a string, since a declaration file in this folder
 * would apply to every test of the project.
 */
const PREAMBLE = `
declare const env: NodeJS.ProcessEnv;
declare class AdminGuard implements import('@nestjs/common').CanActivate { canActivate(): boolean }
declare const Public: () => ClassDecorator;
declare const app: import('@nestjs/common').INestApplication;
declare const publisher: import('nestjs-webhook-token').WebhookPublisher;
declare const endpoints: import('nestjs-webhook-token').WebhookEndpoints;
declare const deliveries: import('nestjs-webhook-token').WebhookDeliveries;
declare const inbox: import('nestjs-webhook-token').WebhookInbox;
declare const verifier: import('nestjs-webhook-token').WebhookVerifier;
declare const event: import('nestjs-webhook-token').WebhookEvent;
declare const order: { id: string; total: number };
declare const dataSource: import('typeorm').DataSource;
declare const pool: import('pg').Pool;
declare const plaidClient: { webhookVerificationKeyGet(request: { key_id: string }): Promise<{ data: { key: import('nestjs-webhook-token/senders').PlaidKey } }> };
declare const { describe, it, expect, beforeAll, afterAll }: Pick<typeof import('@jest/globals'), 'describe' | 'it' | 'expect' | 'beforeAll' | 'afterAll'>;
`;

const FOLDER = join(ROOT, 'test', 'docs', 'snippets');
const PREAMBLE_FILE = join(FOLDER, 'preamble.d.ts');

/**
 * Type-checks snippets against the sources of the package, as strictly as those are.
 *
 * Every snippet is a module of its own. A snippet that declares events is also a program of its own, because
 * its declarations would apply to all the others.
 */
export class SnippetCompiler {
  private readonly options: ts.CompilerOptions;
  private readonly parsed = new Map<string, ts.SourceFile | undefined>();

  constructor() {
    const path = join(ROOT, 'tsconfig.json');
    const { config } = ts.readConfigFile(path, (file) => ts.sys.readFile(file));
    this.options = {
      ...ts.parseJsonConfigFileContent(
        config,
        { ...ts.sys, readDirectory: () => [] },
        ROOT,
        {},
        path,
      ).options,
      noEmit: true,
      // A snippet may declare something without using it.
      noUnusedLocals: false,
      noUnusedParameters: false,
      // Few applications set it, and it refuses idiomatic code.
      exactOptionalPropertyTypes: false,
    };
  }

  /** @returns the compiler's errors, each with page and line */
  check(snippets: readonly Snippet[]): string[] {
    const declaring = snippets.filter(({ code }) => code.includes('WebhookEventMap'));
    const others = snippets.filter((snippet) => !declaring.includes(snippet));
    return [others, ...declaring.map((snippet) => [snippet])]
      .filter((group) => group.length > 0)
      .flatMap((group) => this.compile(group));
  }

  private compile(snippets: readonly Snippet[]): string[] {
    const files = new Map(
      snippets.map((snippet, index) => [join(FOLDER, `${index}.ts`), snippet] as const),
    );
    const texts = new Map<string, string>([
      [PREAMBLE_FILE, PREAMBLE],
      // Makes the snippet a module; after the code, so that line numbers stay the same.
      ...[...files].map(([name, { code }]) => [name, `${code}\nexport {};\n`] as const),
    ]);
    const program = ts.createProgram({
      rootNames: [...texts.keys()],
      options: this.options,
      host: this.host(texts),
    });
    return [...texts.keys()].flatMap((name) => {
      const file = program.getSourceFile(name);
      if (file === undefined)
        throw new Error(`${name} is missing from the program; check its path`);
      return [
        ...program.getSyntacticDiagnostics(file),
        ...program.getSemanticDiagnostics(file),
      ].map((diagnostic) => describeDiagnostic(diagnostic, file, files.get(name)));
    });
  }

  private host(texts: ReadonlyMap<string, string>): ts.CompilerHost {
    const host = ts.createCompilerHost(this.options);
    const target = { languageVersion: ts.ScriptTarget.ES2022 };
    return {
      ...host,
      fileExists: (name) => texts.has(name) || host.fileExists(name),
      readFile: (name) => texts.get(name) ?? host.readFile(name),
      directoryExists: (name) => name === FOLDER || (host.directoryExists?.(name) ?? true),
      getSourceFile: (name, languageVersion) => {
        const text = texts.get(name);
        const format = { impliedNodeFormat: ts.ModuleKind.ESNext as const };
        if (text !== undefined) return ts.createSourceFile(name, text, { ...target, ...format });
        // The library and its types are the same in every program, so they are parsed once.
        if (!this.parsed.has(name))
          this.parsed.set(name, host.getSourceFile(name, languageVersion));
        return this.parsed.get(name);
      },
    };
  }
}

function describeDiagnostic(
  { start = 0, code, messageText }: ts.Diagnostic,
  file: ts.SourceFile,
  snippet: Snippet | undefined,
): string {
  const { line } = file.getLineAndCharacterOfPosition(start);
  const place =
    snippet === undefined ? `preamble:${line}` : `${snippet.document}:${snippet.line + line}`;
  return `${place}: TS${code} ${ts.flattenDiagnosticMessageText(messageText, ' ')}`;
}
