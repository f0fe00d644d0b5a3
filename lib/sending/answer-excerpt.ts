/** A string with its escapes decoded, and the mapping back. */
interface ReadText {
  readonly text: string;
  /** The index in the original string of a character of {@link text}. */
  readonly indexOf: (at: number) => number;
}

/** Printable ASCII, as URLs, JSON, JavaScript and HTML escape it. */
const ESCAPE =
  /%([2-7][\da-f])|\\(["\\/])|\\u00([2-7][\da-f])|\\u\{0*([2-7][\da-f])\}|\\x([2-7][\da-f])|&#x0*([2-7][\da-f]);?|&#0*(\d{2,3})(?:;|(?!\d))|&(amp|quot|apos|lt|gt);/gi;

const ENTITIES: Readonly<Record<string, string>> = {
  amp: '&',
  quot: '"',
  apos: "'",
  lt: '<',
  gt: '>',
};

/** How many levels of escapes are decoded: an answer may quote a quoted request. */
const MAX_DEPTH = 4;

/** A string, and what is left of it after each level of its escapes is decoded. */
function readEscaped(text: string): [ReadText, ...ReadText[]] {
  const levels: [ReadText, ...ReadText[]] = [{ text, indexOf: (at) => at }];
  let last = levels[0];
  while (levels.length <= MAX_DEPTH && /[%&\\]/.test(last.text)) {
    const next = readOnce(last);
    if (next === undefined) break;
    levels.push(next);
    last = next;
  }
  return levels;
}

/** @returns `undefined` if nothing is escaped */
function readOnce({ text, indexOf }: ReadText): ReadText | undefined {
  let unescaped = '';
  let done = 0;
  /** For each escape: the index of its character, and how many characters were removed up to it. */
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
  const { 1: percent, 2: literal, 3: json, 4: braces, 5: script, 6: html, 7: decimal } = groups;
  const entity = groups[8]?.toLowerCase();
  if (entity !== undefined) return ENTITIES[entity];
  if (literal !== undefined) return literal;
  const hex = percent ?? json ?? braces ?? script ?? html;
  const code = hex === undefined ? Number(decimal) : parseInt(hex, 16);
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

/** The parts of a request that must be redacted if a receiver sends them back. */
interface AnswerSecrets {
  /** Of every request of the attempt. */
  readonly tokens: readonly string[];
  /** Of Standard Webhooks. */
  readonly signatures?: readonly string[] | undefined;
  /** Its path and its query may be credentials. */
  readonly url: string;
  /** Headers of the endpoint's own; a value may be a key. */
  readonly headers: Readonly<Record<string, string>>;
  /** Secret values of credentials, however short. */
  readonly credentials?: readonly string[] | undefined;
}

interface Finding {
  readonly from: number;
  readonly to: number;
  readonly mark: '[token]' | '[header]' | '[url]';
}

/** This many consecutive characters of a token are treated as a part of it. */
const GRAM = 16;
/** Shorter header values and segments of a path are words such as `application/json`, not keys. */
const LEAST_KEY = 17;
/** Shorter values of a query are redacted only together with the rest of it. */
const LEAST_QUERY_VALUE = 8;

/** Three parts of base64url. Header and signature of a JWS are at least this long. */
const COMPACT_JWS = /(?<![\w-])[\w-]{16,}\.[\w-]*\.[\w-]{16,}(?:\.[\w-]+)*/g;
const BASE64URL_RUN = /[\w.-]{16,}/g;

/**
 * Redacts everything that looks like a token, any part of a sent token (ignoring case), the path and query of the URL, and
 * the values of headers, also if they are escaped as in JSON, URLs or HTML.
 */
function redact(text: string, secrets: AnswerSecrets): string {
  if (text.length < 2) return text;
  const { tokens, headers, signatures = [], credentials = [], url } = secrets;
  const keys = [...Object.values(headers), ...signatures].filter(
    (value) => value.length >= LEAST_KEY,
  );
  // Spaces around the value of a header are not part of it (RFC 9110, section 5.5).
  const values = [...keys, ...credentials].map((value) => value.trim()).filter(Boolean);
  const parts = partsOf(url);
  let grams: Set<string> | undefined;
  const isGram = (part: string): boolean =>
    (grams ??= gramsOf([...tokens, ...credentials])).has(part);
  // At every level: a value may have what looks like an escape.
  const findings = readEscaped(text)
    .flatMap(({ text: read, indexOf }) =>
      [
        ...findJws(read),
        ...findTokens(read, isGram),
        ...findWhole(read, values, '[header]'),
        ...findWhole(read, parts, '[url]'),
      ].map(({ from, to, mark }) => ({ from: indexOf(from), to: indexOf(to), mark })),
    )
    .sort((a, b) => a.from - b.from || b.to - a.to);
  let redacted = '';
  let done = 0;
  for (const { from, to, mark } of merged(findings)) {
    redacted += text.slice(done, from) + mark;
    done = to;
  }
  return redacted + text.slice(done);
}

function findJws(text: string): Finding[] {
  return [...text.matchAll(COMPACT_JWS)].map(({ index, 0: found }) => ({
    from: index,
    to: index + found.length,
    mark: '[token]',
  }));
}

/** Finds parts of tokens too: an answer may be cut, or show header, payload and signature separately. */
function findTokens(text: string, isGram: (part: string) => boolean): Finding[] {
  const findings: Finding[] = [];
  for (const { index, 0: run } of text.matchAll(BASE64URL_RUN)) {
    const lower = lowerCase(run);
    for (let at = 0; at + GRAM <= lower.length; at++) {
      if (!isGram(lower.slice(at, at + GRAM))) continue;
      findings.push({ from: index + at, to: index + at + GRAM, mark: '[token]' });
    }
  }
  return findings;
}

function gramsOf(tokens: readonly string[]): Set<string> {
  const grams = new Set<string>();
  for (const token of tokens) {
    const lower = lowerCase(token);
    for (let at = 0; at + GRAM <= lower.length; at++) grams.add(lower.slice(at, at + GRAM));
  }
  return grams;
}

/** Each value is searched once, and overlaps are skipped, since senders of answers choose both: the work stays linear. */
function findWhole(text: string, wanted: readonly string[], mark: Finding['mark']): Finding[] {
  const lower = lowerCase(text);
  const findings: Finding[] = [];
  for (const value of new Set(wanted.map(lowerCase))) {
    let from = lower.indexOf(value);
    while (from >= 0) {
      const to = from + value.length;
      findings.push({ from, to, mark });
      from = lower.indexOf(value, to);
    }
  }
  return findings;
}

/** Path and query, and what of them may be a key by itself. */
function partsOf(url: string): string[] {
  if (!URL.canParse(url)) return [];
  const { pathname, search, searchParams } = new URL(url);
  const whole = [`${pathname}${search}`, search, pathname];
  const segments = pathname.split('/').filter((part) => part.length >= LEAST_KEY);
  const values = [...searchParams.values()].filter((part) => part.length >= LEAST_QUERY_VALUE);
  const parts = [...whole, ...segments].flatMap((part) =>
    readEscaped(part).map(({ text }) => text),
  );
  return [...parts, ...values].filter((part) => part.length > 2);
}

function merged(sorted: readonly Finding[]): Finding[] {
  const findings: Finding[] = [];
  for (const next of sorted) {
    const last = findings.at(-1);
    if (last === undefined || next.from > last.to) findings.push(next);
    else if (next.to > last.to) findings[findings.length - 1] = { ...last, to: next.to };
  }
  return findings;
}

/** ASCII only: other letters could change the length. */
function lowerCase(text: string): string {
  return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

/** The body of an answer, as far as it was read. */
export interface AnswerBody {
  readonly octets: Uint8Array;
  readonly contentType: string | undefined;
  readonly contentEncoding: string | undefined;
}

/** The longest excerpt, in bytes of UTF-8. */
const MAX_EXCERPT_BYTES = 1_024;

/** Bytes that are read: redaction shortens the beginning, so more than the excerpt is needed. */
const MAX_READ_BYTES = 16_384;

const TEXT =
  /^\s*(?:text\/|application\/(?:[^;\s]*[+./-])?(?:json|xml|yaml|javascript|x-www-form-urlencoded)\s*(?:;|$))/i;

/** Characters that control a terminal, break a log line, or change the direction of text. */
const LINE_SPACE = /[\t\n\v\f\r\u0085\u2028\u2029]/g;
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/**
 * The beginning of an answer, for people to read: at most 1024 bytes of UTF-8. Secrets of the request are redacted before
 * the text is cut, so that no part of one is left.
 *
 * @returns `undefined` if there is no body; its size if it is not text
 */
export function excerptOf(
  { octets, contentType, contentEncoding }: AnswerBody,
  secrets: AnswerSecrets,
): string | undefined {
  if (octets.byteLength === 0) return undefined;
  const read = Buffer.from(
    octets.buffer,
    octets.byteOffset,
    Math.min(octets.byteLength, MAX_READ_BYTES),
  );
  if (!isText(read, contentType, contentEncoding)) {
    return `[${octets.byteLength} bytes that are not text]`;
  }
  const text = redact(read.toString('utf8'), secrets);
  return cut(text.replace(LINE_SPACE, ' ').replace(CONTROL, '\ufffd'));
}

function isText(
  read: Buffer,
  contentType: string | undefined,
  contentEncoding: string | undefined,
): boolean {
  if (contentEncoding !== undefined && !/^\s*(?:identity\s*)?$/i.test(contentEncoding))
    return false;
  if (read.includes(0)) return false;
  // Without a content type, text is anything that is valid UTF-8.
  if (contentType === undefined) return !read.toString('utf8').slice(0, -1).includes('\ufffd');
  return TEXT.test(contentType);
}

function cut(text: string): string {
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(MAX_EXCERPT_BYTES));
  return text.slice(0, read);
}
