import { WebhookPayloadError } from '../../errors/webhook-payload.error.js';
import { hasPrototypeMember, nestsDeeper, parseJson } from '../../token/strict-json.js';
import { MAX_DATA_DEPTH } from '../../token/webhook-token.constants.js';

const JSON_TYPE = /^application\/(?:json|[^\s;]+\+json)$/;

/** Tells whether a content type is JSON: `application/json`, or a `+json` of RFC 6839. */
export function isJsonType(contentType: string | undefined): boolean {
  return contentType !== undefined && JSON_TYPE.test(mediaType(contentType));
}

/**
 * Parses an authentic JSON body as strictly as inline data.
 *
 * @throws {@link WebhookPayloadError} `unsupported_encoding` for a charset the runtime does not decode,
 *   `invalid_payload` for anything that is not safe JSON; never with a piece of the body in it
 */
export function parseJsonPayload(bytes: Buffer, contentType: string): unknown {
  const text = decode(bytes, charset(contentType));
  if (text.length > WORTH_A_LOOK && opensDeeper(text, MAX_DATA_DEPTH)) throw tooDeep();
  const value = parseJson(text);
  if (value === undefined) throw invalid('the body is not JSON');
  if (nestsDeeper(value, MAX_DATA_DEPTH)) {
    throw tooDeep();
  }
  if (hasPrototypeMember(text, value)) {
    throw invalid('the body has a member that would replace a prototype');
  }
  return value;
}

function tooDeep(): WebhookPayloadError {
  return invalid(`the body nests more than ${MAX_DATA_DEPTH} levels`);
}

/** Characters from which a body that is nothing but brackets would hold the event loop while it is parsed. */
const WORTH_A_LOOK = 65_536;

/** Tells whether brackets open deeper than so many levels, in a text that may not be JSON. */
function opensDeeper(text: string, levels: number): boolean {
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const character = text[i];
    if (character === '"') {
      i = endOfString(text, i);
      if (i === -1) return false;
    } else if (character === '{' || character === '[') {
      if (++depth > levels) return true;
    } else if (character === '}' || character === ']') {
      depth--;
    }
  }
  return false;
}

/** @returns `-1` for a string that has no end */
function endOfString(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); end !== -1; end = text.indexOf('"', end + 1)) {
    let backslashes = 0;
    while (text[end - 1 - backslashes] === '\\') backslashes++;
    if (backslashes % 2 === 0) return end;
  }
  return -1;
}

function decode(bytes: Buffer, label: string): string {
  let decoder: InstanceType<typeof TextDecoder>;
  try {
    decoder = new TextDecoder(label, { fatal: true, ignoreBOM: true });
  } catch {
    throw new WebhookPayloadError(
      'unsupported_encoding',
      'the charset of the body is not known here: send JSON as UTF-8',
    );
  }
  try {
    return decoder.decode(bytes);
  } catch {
    throw invalid('the body is not text in the charset its content type names');
  }
}

function mediaType(contentType: string): string {
  return (contentType.split(';', 1)[0] ?? '').trim().toLowerCase();
}

/** RFC 8259 knows UTF-8 only; what a sender declares besides is honoured where it can be decoded. */
function charset(contentType: string): string {
  return /;\s*charset\s*=\s*"?([^\s";]+)/i.exec(contentType)?.[1] ?? 'utf-8';
}

function invalid(message: string): WebhookPayloadError {
  return new WebhookPayloadError('invalid_payload', message);
}
