import { readEscaped } from './escaped-text.js';

/** What was sent with a request, and must not be kept when a receiver sends it back. */
export interface AnswerSecrets {
  /** Of every request of the attempt. */
  readonly tokens: readonly string[];
  /** Its path and its query may be credentials. */
  readonly url: string;
  /** Headers of the endpoint's own; a value may be a key. */
  readonly headers: Readonly<Record<string, string>>;
}

interface Finding {
  /** In the text as it is read. */
  readonly from: number;
  readonly to: number;
  readonly mark: '[token]' | '[header]' | '[url]';
}

/** So many characters of a token in a row are a part of it, and no accident. */
const GRAM = 16;
/** Headers' values shorter than this are words like `application/json`, not keys. */
const LEAST_KEY = 17;

/** Three parts of base64url, the first and the third as long as a header and a signature are at least; nothing shorter is a JWS. */
const COMPACT_JWS = /(?<![\w-])[\w-]{16,}\.[\w-]*\.[\w-]{16,}(?:\.[\w-]+)*/g;
const BASE64URL_RUN = /[\w.-]{16,}/g;

/**
 * Takes out of a text what must not be kept: whatever looks like a token, any part of a token that was sent, in either case of
 * letters, the path and query of the URL, and the values of headers. It sees through the escapes of JSON, URLs and HTML.
 */
export function redact(text: string, secrets: AnswerSecrets): string {
  if (text.length < 2) return text;
  const read = readEscaped(text);
  const findings = [
    ...findJws(read.text),
    ...findTokens(read.text, secrets.tokens),
    ...findWhole(read.text, keysOf(secrets.headers), '[header]'),
    ...findWhole(read.text, pathsOf(secrets.url), '[url]'),
  ].sort((a, b) => a.from - b.from || b.to - a.to);
  let redacted = '';
  let done = 0;
  for (const { from, to, mark } of merged(findings)) {
    redacted += text.slice(done, read.indexOf(from)) + mark;
    done = read.indexOf(to);
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

/** By their parts, since an answer may be cut, and may give header, payload and signature apart. */
function findTokens(text: string, tokens: readonly string[]): Finding[] {
  const findings: Finding[] = [];
  let grams: Set<string> | undefined;
  for (const { index, 0: run } of text.matchAll(BASE64URL_RUN)) {
    grams ??= gramsOf(tokens);
    const lower = lowerCase(run);
    for (let at = 0; at + GRAM <= lower.length; at++) {
      if (!grams.has(lower.slice(at, at + GRAM))) continue;
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

function findWhole(text: string, wanted: readonly string[], mark: Finding['mark']): Finding[] {
  const lower = lowerCase(text);
  return wanted.map(lowerCase).flatMap((value) => {
    const findings: Finding[] = [];
    for (let from = lower.indexOf(value); from >= 0; from = lower.indexOf(value, from + 1)) {
      findings.push({ from, to: from + value.length, mark });
    }
    return findings;
  });
}

function keysOf(headers: Readonly<Record<string, string>>): string[] {
  return Object.values(headers).filter((value) => value.length >= LEAST_KEY);
}

function pathsOf(url: string): string[] {
  if (!URL.canParse(url)) return [];
  const { pathname, search } = new URL(url);
  const decoded = readEscaped(`${pathname}${search}`).text;
  const query = readEscaped(search).text;
  return [`${pathname}${search}`, decoded, search, query, pathname].filter(
    (part) => part.length > 2,
  );
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

/** Of ASCII only: with other letters the length could change. */
function lowerCase(text: string): string {
  return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}
