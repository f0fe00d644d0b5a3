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
  for (const [code, detail, apply] of REPAIRS) {
    const repaired = apply(value);
    if (repaired !== value) damage.push({ code, detail });
    value = repaired;
  }
  const token = /^bearer\s+(\S+)$/i.exec(value)?.[1];
  return damage.length > 0 && token !== undefined && THREE_PARTS.test(token)
    ? { token, damage }
    : undefined;
}

/** Repairs a value; returns an undamaged one as it is. */
type Repair = (value: string) => string;

const THREE_PARTS = /^[^\s.]+\.[^\s.]+\.[^\s.]+$/;

/**
 * Outermost damage first. The header is unauthenticated, so no expression may take quadratic time: none starts a match within a
 * run that it has tried before.
 */
const REPAIRS: readonly (readonly [code: ExplanationHintCode, detail: string, apply: Repair])[] = [
  [
    'token_url_encoded',
    'the Authorization header is URL-encoded',
    (text) => (/%[0-9a-f]{2}/i.test(text) ? urlDecoded(text) : text),
  ],
  [
    'authorization_repeated',
    'two credentials are joined by a comma: a proxy has merged two Authorization headers',
    (text) => (text.includes(',') ? text.slice(0, text.indexOf(',')).trim() : text),
  ],
  ['token_quoted', 'the Authorization header is in quotes', unquoted],
  [
    'scheme_doubled',
    '"Bearer" is repeated: the client adds it to a value that already has it',
    (text) => text.replace(/^bearer[\s:]+(?=bearer[\s:])/i, ''),
  ],
  [
    'scheme_missing',
    '"Bearer" is missing before the token',
    (text) => (THREE_PARTS.test(text) ? `Bearer ${text}` : text),
  ],
  [
    'scheme_other',
    'the scheme before the token is not "Bearer" and a space',
    (text) =>
      text.replace(/^(?!bearer\s)[A-Za-z][\w-]{0,15}[:\s]+(?![:\s])(?=\S+\.\S+\.)/i, 'Bearer '),
  ],
  ['token_quoted', 'the token is in quotes', inToken(unquoted)],
  [
    'token_split',
    'the token contains white space: it was wrapped, or copied with a line break',
    inToken((token) => token.replace(/\s+/g, '')),
  ],
  [
    'token_padded',
    'a part of the token ends in "=": remove the base64url padding',
    (text) => text.replace(/(?<!=)=+(?=\.|$)/g, ''),
  ],
  [
    'token_base64',
    'the token contains "+" or "/": encode it as base64url, not as base64',
    inToken((token) => token.replace(/\+/g, '-').replace(/\//g, '_')),
  ],
];

/** Repairs what follows "Bearer". */
function inToken(repair: (token: string) => string): Repair {
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
