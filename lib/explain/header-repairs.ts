import type { RequestHeaders } from '../request/webhook-scheme.js';
import type { ExplanationHint, ExplanationHintCode } from './webhook-explanation.interface.js';

/** An Authorization header with the usual damage of clients and proxies repaired. */
export interface RepairedHeader {
  readonly token: string;
  /** The damage that was found, in order. */
  readonly damage: readonly ExplanationHint[];
}

/**
 * Repairs the damage that clients and proxies do to an Authorization header.
 *
 * @returns `undefined` if there is no damage, or if the result does not look like a token
 */
export function repairHeader(headers: RequestHeaders): RepairedHeader | undefined {
  const values = headers.all('authorization');
  const damage: ExplanationHint[] = [];
  if (values.length > 1) {
    damage.push({
      code: 'authorization_repeated',
      detail: `the request has ${values.length} Authorization headers`,
    });
  }
  let value = values[0]?.trim() ?? '';
  for (const { code, detail, apply } of REPAIRS) {
    const repaired = apply(value);
    if (repaired !== value) damage.push({ code, detail });
    value = repaired;
  }
  const token = /^bearer\s+(\S+)$/i.exec(value)?.[1];
  return damage.length > 0 && token !== undefined && THREE_PARTS.test(token)
    ? { token, damage }
    : undefined;
}

interface Repair {
  readonly code: ExplanationHintCode;
  readonly detail: string;
  /** Repairs a value; returns an undamaged one as it is. */
  readonly apply: (value: string) => string;
}

const THREE_PARTS = /^[^\s.]+\.[^\s.]+\.[^\s.]+$/;

/**
 * Outermost damage first. The header is unauthenticated, so no expression may take quadratic time: none starts a match within a
 * run that it has tried before.
 */
const REPAIRS: readonly Repair[] = [
  {
    code: 'token_url_encoded',
    detail: 'the Authorization header is URL-encoded',
    apply: (text) => (/%[0-9a-f]{2}/i.test(text) ? urlDecoded(text) : text),
  },
  {
    code: 'authorization_repeated',
    detail: 'two credentials are joined by a comma: a proxy has merged two Authorization headers',
    apply: (text) => (text.includes(',') ? text.slice(0, text.indexOf(',')).trim() : text),
  },
  {
    code: 'token_quoted',
    detail: 'the Authorization header is in quotes',
    apply: unquoted,
  },
  {
    code: 'scheme_doubled',
    detail: '"Bearer" is repeated: the client adds it to a value that already has it',
    apply: (text) => text.replace(/^bearer[\s:]+(?=bearer[\s:])/i, ''),
  },
  {
    code: 'scheme_missing',
    detail: '"Bearer" is missing before the token',
    apply: (text) => (THREE_PARTS.test(text) ? `Bearer ${text}` : text),
  },
  {
    code: 'scheme_other',
    detail: 'the scheme before the token is not "Bearer" and a space',
    apply: (text) =>
      text.replace(/^(?!bearer\s)[A-Za-z][\w-]{0,15}[:\s]+(?![:\s])(?=\S+\.\S+\.)/i, 'Bearer '),
  },
  {
    code: 'token_quoted',
    detail: 'the token is in quotes',
    apply: inToken(unquoted),
  },
  {
    code: 'token_split',
    detail: 'the token contains white space: it was wrapped, or copied with a line break',
    apply: inToken((token) => token.replace(/\s+/g, '')),
  },
  {
    code: 'token_padded',
    detail: 'a part of the token ends in "=": remove the base64url padding',
    apply: (text) => text.replace(/(?<!=)=+(?=\.|$)/g, ''),
  },
  {
    code: 'token_base64',
    detail: 'the token contains "+" or "/": encode it as base64url, not as base64',
    apply: inToken((token) => token.replace(/\+/g, '-').replace(/\//g, '_')),
  },
];

/** Repairs what follows "Bearer". */
function inToken(repair: (token: string) => string): Repair['apply'] {
  return (text) =>
    text.replace(/^(bearer\s+)(.*)$/is, (_, scheme, rest) => scheme + repair(rest as string));
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
