import { redact, type AnswerSecrets } from './answer-redaction.js';

/** The body of an answer, as far as it was read. */
export interface AnswerBody {
  readonly octets: Uint8Array;
  readonly contentType: string | undefined;
  readonly contentEncoding: string | undefined;
}

/** Bytes of an answer's text that are kept, as UTF-8. */
const MAX_EXCERPT_BYTES = 1_024;

/** Bytes that are looked at: what is taken out of the beginning makes room for what comes behind. */
const MAX_READ_BYTES = 16_384;

const TEXT =
  /^\s*(?:text\/|application\/(?:[^;\s]*[+./-])?(?:json|xml|yaml|javascript|x-www-form-urlencoded)\s*(?:;|$))/i;

/** Whatever would steer a terminal, break a line of a log, or turn the direction of text round. */
const LINE_SPACE = /[\t\n\v\f\r\u0085\u2028\u2029]/g;
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/**
 * The beginning of an answer as text for people to read: at most 1024 bytes of UTF-8. What was sent with the request and should
 * not be kept is taken out first, so that a cut never leaves a part of it.
 *
 * @returns `undefined` where there is no body; where it is no text, how many bytes it has
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
    return `[${octets.byteLength} bytes that are no text]`;
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
  // An answer without a type is mostly a word or two; what is no UTF-8 is none.
  if (contentType === undefined) return !read.toString('utf8').slice(0, -1).includes('\ufffd');
  return TEXT.test(contentType);
}

function cut(text: string): string {
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(MAX_EXCERPT_BYTES));
  return text.slice(0, read);
}
