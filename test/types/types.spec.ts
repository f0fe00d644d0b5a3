import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from '@jest/globals';
import ts from 'typescript';

interface Report {
  readonly file: string;
  /** Starts at 1, as in editors. */
  readonly line: number;
  readonly message: string;
}

/** Files that programs share; their options are the same. */
const parsed = new Map<string, ts.SourceFile | undefined>();

/** Compiles a program in a folder next to this file; returns the errors in its own files. */
function compile(folder: string): Report[] {
  const directory = join(import.meta.dirname, folder);
  const config = ts.getParsedCommandLineOfConfigFile(join(directory, 'tsconfig.json'), undefined, {
    ...ts.sys,
    onUnRecoverableConfigFileDiagnostic: (diagnostic) => {
      throw new Error(ts.flattenDiagnosticMessageText(diagnostic.messageText, '\n'));
    },
  });
  if (config === undefined || config.fileNames.length === 0)
    throw new Error(`${folder} has no source files.`);
  const host = ts.createCompilerHost(config.options);
  const read = host.getSourceFile;
  host.getSourceFile = (name, ...how) => {
    if (!parsed.has(name)) parsed.set(name, read(name, ...how));
    return parsed.get(name);
  };
  const program = ts.createProgram(config.fileNames, config.options, host);
  return config.fileNames.flatMap((name) => {
    const file = program.getSourceFile(name)!;
    return [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)].map(
      ({ start = 0, messageText }) => ({
        file: name.slice(directory.length + 1),
        line: file.getLineAndCharacterOfPosition(start).line + 1,
        message: ts.flattenDiagnosticMessageText(messageText, '\n'),
      }),
    );
  });
}

describe('typed events', () => {
  it('accept correct uses of declared events and reject wrong ones', () => {
    expect(compile('declared')).toEqual([]);
  });

  it('accept every name and all data if no event is declared', () => {
    expect(compile('undeclared')).toEqual([]);
  });
});

describe('wrong events and data', () => {
  let reports: Report[];

  beforeAll(() => {
    reports = compile('wrong');
  });

  it('cause a compiler error on every wrong line and on no other', () => {
    const lines = readFileSync(join(import.meta.dirname, 'wrong/wrong.ts'), 'utf8').split('\n');
    const wrong = lines.flatMap((line, index) => (line.endsWith('// wrong') ? [index + 1] : []));

    expect([...new Set(reports.map(({ line }) => line))]).toEqual(wrong);
    expect(wrong).toHaveLength(5);
  });

  it('cause compiler errors that name what was written and what was expected', () => {
    const messages = reports.map(({ message }) => message).join('\n');

    expect(messages).toContain(
      `Type '(order: { stranger: boolean; }) => void' is not assignable to type 'HandlerDoesNotFit<"order.created", { id: string; }>'`,
    );
    for (const wrong of ['"order.creatd"', '"nothing.*"']) {
      expect(messages).toContain(
        `Argument of type '${wrong}' is not assignable to parameter of type '"order.created" | NoSuchEvent<${wrong}>'`,
      );
    }
  });
});
