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
  const value = parseJson(text);
  if (value === undefined) throw invalid('the body is not JSON');
  if (nestsDeeper(value, MAX_DATA_DEPTH)) {
    throw invalid(`the body nests more than ${MAX_DATA_DEPTH} levels`);
  }
  if (hasPrototypeMember(text, value)) {
    throw invalid('the body has a member that would replace a prototype');
  }
  return value;
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
