import { randomUUID } from 'node:crypto';
import { WebhookTokenError } from '../../errors/webhook.error.js';
import { MAX_DATA_DEPTH, MAX_TOKEN_DEPTH } from '../webhook-token.constants.js';
import { decodeBase64urlText } from './base64url.js';
import {
  countNames,
  countSoundMembers,
  exceedsMembers,
  hasDuplicateMember,
  isObject,
  parseJson,
  structureFault,
  type StructureFault,
} from './strict-json.js';

const MESSAGES: Readonly<Record<StructureFault, string>> = {
  'too deep': `the claims nest more than ${MAX_DATA_DEPTH} levels of data`,
  'prototype member': 'the claims have a member that would replace a prototype',
};

/**
 * Refuses claims that JSON.parse takes and another reader may take in another way.
 *
 * @throws {@link WebhookTokenError} `invalid_claim`
 */
export function requireSoundStructure(json: ClaimsJson): void {
  if (isEvidentlySound(json)) return;
  const { value, outline } = json;
  if (hasDuplicateMember(outline, value, 'webhook')) {
    throw new WebhookTokenError('invalid_claim', 'a member stands twice in the claims');
  }
  const fault = structureFault(value, MAX_TOKEN_DEPTH);
  if (fault !== undefined) throw new WebhookTokenError('invalid_claim', MESSAGES[fault]);
}

/**
 * Tells of most sound claims in one walk that they are (benchmark `token`, 300 B and 1 kB). Of others it does not tell
 * what is wrong with them, or whether anything is: data may have a member twice.
 */
export function isEvidentlySound({ value, outline, cut }: ClaimsJson): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return countNames(outline) === countSoundMembers(value, MAX_TOKEN_DEPTH, cut);
}

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
 * @param segment - the second part of the token
 * @returns `undefined` for anything but base64url of UTF-8 with at most so many members
 */
export function readClaims(segment: string, maxMembers: number): ClaimsJson | undefined {
  const text = decodeBase64urlText(segment);
  return text === undefined || exceedsMembers(text, maxMembers) ? undefined : parseClaimsJson(text);
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
