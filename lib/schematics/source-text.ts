import type { DirEntry } from '@angular-devkit/schematics';

export interface Source {
  /** Below the workspace: `src/main.ts`. */
  readonly path: string;
  readonly content: string;
  /** The content without comments, and without what is in strings and regular expressions; positions are the same. */
  readonly code: string;
}

/** The sources below a folder, without tests. The folder of a whole workspace also has packages and hidden folders. */
export function sourcesBelow(folder: DirEntry): readonly Source[] {
  const files = folder.subfiles
    .filter((name) => /(?<!spec|test)\.[cm]?ts$/.test(name))
    .map((name) => {
      const file = folder.file(name)!;
      const content = file.content.toString();
      return { path: file.path.slice(1), content, code: codeOf(content) };
    });
  const folders = folder.subdirs.filter((name) => name !== 'node_modules' && !name.startsWith('.'));
  return [...files, ...folders.flatMap((name) => sourcesBelow(folder.dir(name)))];
}

const COMMENT = /\/\*[^]*?(?:\*\/|$)|\/\/.*/;
const STRING = /'(?:\\[^]|[^'\\\n])*'|"(?:\\[^]|[^"\\\n])*"|`(?:\\[^]|[^`\\])*`/;
/** Behind an operator or a bracket that opens: elsewhere, a slash divides. */
const EXPRESSION =
  /(?<=(?:^|[(,=:[!&|?{};>]|\breturn)\s*)\/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\//;
const TEXT = new RegExp([COMMENT, STRING, EXPRESSION].map(({ source }) => source).join('|'), 'g');

/** The schematics runtime parses TypeScript only to change the metadata of a module. */
function codeOf(content: string): string {
  return content.replace(TEXT, (text) => {
    const blank = text.replace(/[^\n]/g, ' ');
    return /^['"`]/.test(text) ? text[0]! + blank.slice(1, -1) + text.at(-1)! : blank;
  });
}
