import { randomUUID } from 'node:crypto';
import { decodeBase64urlText } from './base64url.js';
import { isObject } from './json-object.js';
import { parseJson } from './strict-json.js';

/** The claims of a token, parsed. */
export interface ClaimsJson {
  readonly value: unknown;
  /** JSON with the members of the claims and of `webhook`; what else is in it may be less than in the token. */
  readonly outline: string;
  /** The data, where the outline has only a stand-in for it. */
  readonly cut?: object;
}

/** Bytes of data from which taking it apart costs less than looking through it. */
const WORTH_CUTTING = 1_024;

/** Stands in for the data; nobody outside this process can have written it into a token. */
const PLACEHOLDER: string = randomUUID();

const DATA = '"data":';
const ENDS = '}}';

/**
 * Reads the claims of a token.
 *
 * @param segment - as it stands in the token
 * @returns `undefined` for anything that is not base64url of UTF-8
 */
export function readClaims(segment: string): ClaimsJson | undefined {
  const text = decodeBase64urlText(segment);
  return text === undefined ? undefined : parseClaimsJson(text);
}

/**
 * Parses claims. Large data is cut out first and parsed by itself, so that what is looked through for
 * members standing twice is a few hundred characters instead of thousands (scenario `token` of the
 * benchmarks, 6 kB). That both parts are whole JSON values, and that the data was the member `data` of
 * `webhook`, is left to JSON.parse to find; a token of another shape is parsed in one piece.
 */
export function parseClaimsJson(text: string): ClaimsJson {
  return parseInParts(text) ?? { value: parseJson(text), outline: text };
}

function parseInParts(text: string): ClaimsJson | undefined {
  if (text.length < WORTH_CUTTING) return undefined;
  const start = text.indexOf(`${DATA}{`) + DATA.length;
  const end = text.length - ENDS.length;
  if (start < DATA.length || end - start < WORTH_CUTTING || !text.endsWith(`}${ENDS}`))
    return undefined;
  const outline = `${text.slice(0, start)}"${PLACEHOLDER}"${ENDS}`;
  const value = parseJson(outline);
  const webhook = isObject(value) ? value['webhook'] : undefined;
  if (!isObject(webhook) || webhook['data'] !== PLACEHOLDER) return undefined;
  const data = parseJson(text.slice(start, end));
  if (!isObject(data)) return undefined;
  (webhook as Record<string, unknown>)['data'] = data;
  return { value, outline, cut: data };
}
