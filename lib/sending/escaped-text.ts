/** A text with its escapes read, and the way back. */
export interface ReadText {
  readonly text: string;
  /** Where a character of it stands in the text as it came. */
  readonly indexOf: (at: number) => number;
}

/** Printable ASCII in the writing of URLs, JSON, JavaScript and HTML. */
const ESCAPE =
  /%([2-7][\da-f])|\\{1,8}u00([2-7][\da-f])|\\{1,8}u\{0*([2-7][\da-f])\}|\\{1,8}x([2-7][\da-f])|&#x0*([2-7][\da-f]);?|&#0*(\d{2,3})(?:;|(?!\d))|\\{1,8}(\/)/gi;

/** An answer that quotes a quotation is read twice; deeper than this nobody writes by accident. */
const MAX_DEPTH = 3;

/** Reads what is escaped in a text, so that it can be searched. */
export function readEscaped(text: string): ReadText {
  let read: ReadText = { text, indexOf: (at) => at };
  for (let depth = 0; depth < MAX_DEPTH && /[%&\\]/.test(read.text); depth++) {
    const next = readOnce(read);
    if (next === undefined) break;
    read = next;
  }
  return read;
}

/** @returns `undefined` where nothing is escaped */
function readOnce({ text, indexOf }: ReadText): ReadText | undefined {
  let unescaped = '';
  let done = 0;
  /** For each escape: where its character stands, and how many have been left out up to behind it. */
  const at: number[] = [];
  const shift: number[] = [];
  for (const { index, 0: escape, ...groups } of text.matchAll(ESCAPE)) {
    const character = characterOf(groups);
    if (character === undefined) continue;
    unescaped += text.slice(done, index) + character;
    done = index + escape.length;
    at.push(unescaped.length - 1);
    shift.push(done - unescaped.length);
  }
  if (at.length === 0) return undefined;
  return {
    text: unescaped + text.slice(done),
    indexOf: (position) => indexOf(position + shiftBefore(position, at, shift)),
  };
}

function characterOf(groups: Readonly<Record<number, string | undefined>>): string | undefined {
  const hex = groups[1] ?? groups[2] ?? groups[3] ?? groups[4] ?? groups[5];
  if (groups[7] !== undefined) return groups[7];
  const code = hex === undefined ? Number(groups[6]) : parseInt(hex, 16);
  return code > 0x20 && code < 0x7f ? String.fromCharCode(code) : undefined;
}

/** By the last escape that ends before a position. */
function shiftBefore(position: number, at: readonly number[], shift: readonly number[]): number {
  let low = 0;
  let high = at.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (at[middle]! < position) low = middle + 1;
    else high = middle;
  }
  return low === 0 ? 0 : shift[low - 1]!;
}
