/** A fenced block of code and its position. */
export interface CodeBlock {
  readonly language: string;
  readonly code: string;
  /** Line of its first line of code, from 1. */
  readonly line: number;
}

/** A link or the name of a file, and its position. */
export interface Reference {
  readonly target: string;
  /** From 1. */
  readonly line: number;
}

/** A file that the prose names in code marks: `webhook.sender.ts`, `receiver/webhook.guard.ts`. */
const FILE = /`((?:[\w.-]+\/)*[\w.-]+\.ts)`/g;
const FENCE = /^(`{3,})\s*(\S*)\s*$/;
const LINK = /\[(?:[^\]\\]|\\.)*\]\(<?([^)\s>]+)>?\)/g;
/** `[name]: https://…`, which links of the form `[text][name]` refer to. */
const DEFINITION = /^\[[^\]]+\]:\s+(\S+)$/;
const HEADING = /^#{1,6}\s+(.*?)\s*#*$/;

/** The parts of a page that the tests check: code, links, file names and anchors. */
export class MarkdownDocument {
  readonly blocks: readonly CodeBlock[];
  readonly links: readonly Reference[];
  readonly files: readonly Reference[];
  /** Anchors of the headings, as GitHub creates them. */
  readonly anchors: ReadonlySet<string>;

  constructor(
    /** Path from the root of the repository, with slashes. */
    readonly path: string,
    text: string,
  ) {
    const blocks: CodeBlock[] = [];
    const links: Reference[] = [];
    const files: Reference[] = [];
    const anchors = new Set<string>();
    let open: { fence: string; language: string; line: number; code: string[] } | undefined;

    text.split('\n').forEach((content, index) => {
      const line = index + 1;
      const [, fence, language = ''] = FENCE.exec(content) ?? [];
      if (open !== undefined) {
        if (fence === open.fence && language === '') {
          blocks.push({ language: open.language, code: open.code.join('\n'), line: open.line });
          open = undefined;
        } else {
          open.code.push(content);
        }
      } else if (fence !== undefined) {
        open = { fence, language, line: line + 1, code: [] };
      } else {
        const prose = content.replace(/`[^`]*`/g, (code) => code.replace(/[()[\]]/g, ' '));
        for (const [, target] of prose.matchAll(LINK)) links.push({ target: target!, line });
        const [, defined] = DEFINITION.exec(content) ?? [];
        if (defined !== undefined) links.push({ target: defined, line });
        for (const [, target] of content.matchAll(FILE)) files.push({ target: target!, line });
        const heading = HEADING.exec(content)?.[1];
        if (heading !== undefined) anchors.add(unused(anchorOf(heading), anchors));
      }
    });
    if (open !== undefined)
      throw new Error(
        `${path}:${open.line}: this block of code is not closed; add the closing fence`,
      );
    this.blocks = blocks;
    this.links = links;
    this.files = files;
    this.anchors = anchors;
  }
}

function anchorOf(heading: string): string {
  return heading
    .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, '')
    .replace(/\s/g, '-');
}

function unused(anchor: string, taken: ReadonlySet<string>): string {
  if (!taken.has(anchor)) return anchor;
  let number = 1;
  while (taken.has(`${anchor}-${number}`)) number++;
  return `${anchor}-${number}`;
}
