import type { RequestHeaders } from '../request/incoming-webhook.js';
import type { ExplanationHint, ExplanationHintCode } from './webhook-explanation.interface.js';

/** What an Authorization header was before something changed its text, as far as that can be made out. */
export interface UndoneDamage {
  readonly token: string;
  /** What was undone, in order. */
  readonly changes: readonly ExplanationHint[];
}

interface Repair {
  readonly code: ExplanationHintCode;
  readonly detail: string;
  /** The text without the damage; the same text where there is none. */
  readonly undo: (text: string) => string;
}

const THREE_PARTS = /^[^\s.]+\.[^\s.]+\.[^\s.]+$/;

/** From the outside in. */
const REPAIRS: readonly Repair[] = [
  {
    code: 'token_url_encoded',
    detail: 'the Authorization header is URL-encoded',
    undo: (text) => (/%[0-9a-f]{2}/i.test(text) ? urlDecoded(text) : text),
  },
  {
    code: 'authorization_repeated',
    detail:
      'two credentials are joined by a comma: something on the way has merged two Authorization headers',
    undo: (text) => (text.includes(',') ? text.slice(0, text.indexOf(',')).trim() : text),
  },
  {
    code: 'token_quoted',
    detail: 'the Authorization header is in quotes',
    undo: unquoted,
  },
  {
    code: 'scheme_doubled',
    detail: 'the word Bearer stands twice: the client adds it to a value that has it already',
    undo: (text) => text.replace(/^bearer[\s:]+(?=bearer[\s:])/i, ''),
  },
  {
    code: 'scheme_missing',
    detail: 'the token stands in the Authorization header without the word Bearer before it',
    undo: (text) => (THREE_PARTS.test(text) ? `Bearer ${text}` : text),
  },
  {
    code: 'scheme_other',
    detail: 'the token stands behind another word than "Bearer" and a space',
    undo: (text) =>
      text.replace(/^(?!bearer\s)[A-Za-z][\w-]{0,15}[:\s]+(?=\S+\.\S+\.)/i, 'Bearer '),
  },
  {
    code: 'token_quoted',
    detail: 'the token is in quotes',
    undo: (text) =>
      text.replace(/^(bearer\s+)(.*)$/is, (_, scheme, rest) => scheme + unquoted(rest as string)),
  },
  {
    code: 'token_split',
    detail: 'there is white space in the token: it was wrapped, or copied with a line break',
    undo: (text) =>
      text.replace(
        /^(bearer\s+)(.*)$/is,
        (_, scheme, rest) => scheme + (rest as string).replace(/\s+/g, ''),
      ),
  },
  {
    code: 'token_padded',
    detail: 'the parts of the token end in "=": base64url in a token has no padding',
    undo: (text) => text.replace(/=+(?=\.|$)/g, ''),
  },
  {
    code: 'token_base64',
    detail: 'the token has "+" or "/": it is written in base64, not in base64url',
    undo: (text) =>
      text.replace(
        /^(bearer\s+)(.*)$/is,
        (_, scheme, rest) => scheme + (rest as string).replace(/\+/g, '-').replace(/\//g, '_'),
      ),
  },
];

/**
 * Undoes what clients and proxies do to an Authorization header.
 *
 * @returns `undefined` where nothing was undone, or where nothing like a token comes out
 */
export function undoDamage(headers: RequestHeaders): UndoneDamage | undefined {
  const values = headers.all('authorization');
  const changes: ExplanationHint[] = [];
  if (values.length > 1) {
    changes.push({
      code: 'authorization_repeated',
      detail: `the request has ${values.length} Authorization headers`,
    });
  }
  let text = values[0]?.trim() ?? '';
  for (const { code, detail, undo } of REPAIRS) {
    const undone = undo(text);
    if (undone !== text) changes.push({ code, detail });
    text = undone;
  }
  const token = /^bearer\s+(\S+)$/i.exec(text)?.[1];
  return changes.length > 0 && token !== undefined && THREE_PARTS.test(token)
    ? { token, changes }
    : undefined;
}

function unquoted(text: string): string {
  return /^(["'`]).*\1$/s.test(text) ? text.slice(1, -1).trim() : text;
}

function urlDecoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
