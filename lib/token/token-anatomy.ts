import { decodeBase64urlText } from './json/base64url.js';
import { parseClaimsJson } from './json/claims-json.js';
import { parseCompactToken, type CompactToken } from './compact-token.js';
import { hasDuplicateMember, isObject, parseJson } from './json/strict-json.js';
import { isKeyId } from './identifier.js';

/** What can be read of a token without any key. Nothing in it is authenticated. */
export interface TokenAnatomy {
  /** Absent for a text that is not three parts. */
  readonly compact?: CompactToken;
  readonly header?: Readonly<Record<string, unknown>>;
  /** What is wrong with the header in every profile. */
  readonly headerFault?: string;
  /** Absent where they are not one JSON object in UTF-8. */
  readonly claims?: Readonly<Record<string, unknown>>;
}

/** Takes a token apart as far as it goes; never throws. */
export function readTokenAnatomy(token: string): TokenAnatomy {
  let compact: CompactToken;
  try {
    compact = parseCompactToken(token);
  } catch {
    return {};
  }
  const headerText = decodeBase64urlText(compact.header);
  const header = headerText === undefined ? undefined : parseJson(headerText);
  const headerFault = faultOf(headerText, header);
  const claimsText = decodeBase64urlText(compact.payload);
  const claims = claimsText === undefined ? undefined : parseClaimsJson(claimsText).value;
  return {
    compact,
    ...(isObject(header) && { header }),
    ...(headerFault !== undefined && { headerFault }),
    ...(isObject(claims) && { claims }),
  };
}

function faultOf(text: string | undefined, header: unknown): string | undefined {
  if (text === undefined) return 'the header is not base64url of UTF-8';
  if (!isObject(header)) return 'the header is not a JSON object';
  if (hasDuplicateMember(text, header)) return 'a member stands twice in the header';
  if (typeof header['alg'] !== 'string') return 'the header names no alg';
  const { kid } = header;
  if (kid !== undefined && !isKeyId(kid)) return 'kid is no text that could name a key';
  const extension = ['crit', 'b64', 'zip'].find((name) => name in header);
  return extension === undefined ? undefined : `the header has ${extension}, which is refused`;
}
