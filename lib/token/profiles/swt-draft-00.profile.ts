import { invalidClaim } from '../claim-refusals.js';
import { isObject } from '../json/json-object.js';
import { parsePayloadHash } from '../payload-hash.js';
import { hashOnHead } from '../payload-refusals.js';
import type { WebhookClaim } from '../webhook-claims.interface.js';
import { decodeBase64Json } from './base64-json.js';
import { looksLikeBodyReference, readBodyReference, writeBodyReference } from './body-reference.js';
import type { Members, ProfileRules } from './profile-rules.interface.js';

/** draft-knauer-secure-webhook-token-00, as its Go reference (v0.2.2) puts it on the wire and reads it. */
export const SWT_DRAFT_00: ProfileRules = {
  name: 'swt-draft-00',
  typ: 'JWT',
  algorithms: new Set(['HS256', 'HS384', 'HS512']),
  methods: new Set(['HEAD', 'POST']),
  requiresNotBefore: true,
  toleratesSkew: false,
  defaultHash: 'sha3-256',
  hashesEmptyBody: true,

  readClaim(webhook) {
    if (webhook['hash'] !== undefined && typeof webhook['hash'] !== 'string') {
      throw invalidClaim('webhook.hash', 'webhook.hash must be a text');
    }
    const { data, ...others } = webhook;
    // The reference writes bytes as base64, and no bytes at all as `null`.
    if (data === undefined || data === null) return others as unknown as WebhookClaim;
    return { ...others, data: readData(data) } as unknown as WebhookClaim;
  },

  payloadRule({ data, hash }, method) {
    if (method === 'HEAD') {
      // A reference to a body is no data: it would be handled as some, and the POST it is for be a copy of it.
      if (hash !== undefined || looksLikeBodyReference(data)) throw hashOnHead();
      return { kind: 'no-body' };
    }
    const reference = readBodyReference(data);
    // Of a dual stamp both digests must hold, or one request would mean two bodies to two receivers.
    const stamp = hash === undefined ? [] : [parsePayloadHash(hash)];
    return {
      kind: 'digest',
      hashes: [reference.hash, ...stamp],
      size: reference.size,
      emptyBody: 'none',
    };
  },

  reserves: looksLikeBodyReference,

  attempt: () => undefined,

  writeClaim(event, { data, hash, size }) {
    if (hash === undefined)
      return `{"event":"${event}"${data === undefined ? '' : `,"data":${data}`}}`;
    if (data !== undefined || size === undefined) {
      throw invalidClaim(
        'webhook.data',
        'with a hash, swt-draft-00 refers to the body in webhook.data: give its size, and no data',
      );
    }
    const reference = writeBodyReference({ hash, size });
    // The dual stamp: receivers of the specification read `hash`, those of the draft `data`.
    return `{"event":"${event}","data":${reference},"hash":"${hash.algorithm}:${hash.hex}"}`;
  },
};

/** Tells whether a claim is in a form that no other profile has, so that it can mean nothing else. */
export function isDraft00Claim({ data }: Members): boolean {
  return data === null || typeof data === 'string' || looksLikeBodyReference(data);
}

function readData(data: unknown): Members {
  if (typeof data === 'string') return decodeBase64Json(data);
  if (isObject(data)) return data;
  throw invalidClaim('webhook.data', 'webhook.data must be a JSON object, or the base64 of one');
}
