import { invalidClaim, hashOnHead } from '../token-refusals.js';
import { isObject } from '../json/strict-json.js';
import { parsePayloadHash } from '../payload-hash.js';
import { SIGNATURE_ALGORITHMS } from '../webhook-token.constants.js';
import type { WebhookClaim } from '../webhook-claims.interface.js';
import type { ProfileRules } from './profile-rules.js';

/** The wire format of the specification. */
export const WEBHOOK_TOKEN: ProfileRules = {
  name: 'webhook-token',
  typ: 'JWT',
  algorithms: new Set(SIGNATURE_ALGORITHMS),
  methods: new Set(['HEAD', 'POST']),
  // The specification lists `nbf` as required, but its own example, which must verify, has none.
  requiresNotBefore: false,
  toleratesSkew: true,
  defaultHash: 'sha256',
  hashesEmptyBody: false,

  readClaim(webhook) {
    if (webhook['data'] !== undefined && !isObject(webhook['data'])) {
      throw invalidClaim('webhook.data', 'webhook.data must be an object');
    }
    if (webhook['hash'] !== undefined && typeof webhook['hash'] !== 'string') {
      throw invalidClaim('webhook.hash', 'webhook.hash must be a string');
    }
    return webhook as unknown as WebhookClaim;
  },

  payloadRule({ hash }, method, { requireHash }) {
    if (method === 'HEAD') {
      if (hash !== undefined) throw hashOnHead();
      return { kind: 'no-body' };
    }
    if (hash !== undefined) {
      return { kind: 'digest', hashes: [parsePayloadHash(hash)], emptyBody: 'data' };
    }
    return requireHash ? { kind: 'empty' } : { kind: 'unverified' };
  },

  attempt: () => undefined,

  writeClaim(event, { data, hash }) {
    const hashMember = hash === undefined ? '' : `,"hash":"${hash.algorithm}:${hash.hex}"`;
    const dataMember = data === undefined ? '' : `,"data":${data}`;
    return `{"event":"${event}"${hashMember}${dataMember}}`;
  },
};
