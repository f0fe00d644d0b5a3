import { invalidClaim } from '../claim-refusals.js';
import { isObject } from '../json/json-object.js';
import { decodeUtf8, parseJson, structureFault, type StructureFault } from '../json/strict-json.js';
import { MAX_DATA_DEPTH } from '../webhook-token.constants.js';

const MESSAGES: Readonly<Record<StructureFault, string>> = {
  'too deep': `webhook.data nests more than ${MAX_DATA_DEPTH} levels`,
  'prototype member': 'webhook.data has a member that would replace a prototype',
};

/**
 * Decodes data that travels as the base64 of its JSON, as strictly as data that travels as JSON.
 *
 * @param text - RFC 4648 section 4: padded, the alphabet with `+` and `/`, canonical
 * @throws {@link WebhookTokenError} `invalid_claim`; never with a piece of the data in it
 */
export function decodeBase64Json(text: string): Readonly<Record<string, unknown>> {
  const bytes = Buffer.from(text, 'base64');
  // Node's decoder takes what it knows and skips the rest; only one text gives the same text again.
  if (bytes.toString('base64') !== text) {
    throw invalidClaim('webhook.data', 'webhook.data is a text, and not canonical base64');
  }
  const json = decodeUtf8(bytes);
  const data = json === undefined ? undefined : parseJson(json);
  if (!isObject(data)) {
    throw invalidClaim('webhook.data', 'webhook.data must be a JSON object, or the base64 of one');
  }
  const fault = structureFault(data, MAX_DATA_DEPTH);
  if (fault !== undefined) throw invalidClaim('webhook.data', MESSAGES[fault]);
  return data;
}
