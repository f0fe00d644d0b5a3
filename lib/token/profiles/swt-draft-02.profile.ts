import { WebhookPayloadError } from '../../errors/webhook.error.js';
import { invalidClaim } from '../validate-claims.js';
import { parsePayloadHash, type HashNames } from '../payload-hash.js';
import type { WebhookClaim } from '../webhook-claims.interface.js';
import type { ProfileRules } from './profile.js';

/** Names of the IANA registry of RFC 6920, section 9.4. */
const NAMES: HashNames = {
  sha256: 'sha-256',
  sha384: 'sha-384',
  sha512: 'sha-512',
  'sha3-256': 'sha3-256',
  'sha3-384': 'sha3-384',
  'sha3-512': 'sha3-512',
};

/** draft-knauer-secure-webhook-token-02: POST only, and the payload is always the body. */
export const SWT_DRAFT_02: ProfileRules = {
  name: 'swt-draft-02',
  typ: 'SWT',
  algorithms: new Set(['HS256', 'HS384', 'HS512', 'RS256', 'ES256']),
  methods: new Set(['POST']),
  requiresNotBefore: true,
  toleratesSkew: true,
  defaultHash: 'sha256',
  hashesEmptyBody: false,

  readClaim(webhook) {
    const { data, hash, retry_count: retryCount } = webhook;
    if (data !== undefined) {
      throw invalidClaim(
        'webhook.data',
        'swt-draft-02 has no webhook.data: the payload is the body',
      );
    }
    if (hash !== undefined && typeof hash !== 'string') {
      throw invalidClaim('webhook.hash', 'webhook.hash must be a string');
    }
    if (retryCount !== undefined && !isCount(retryCount)) {
      throw invalidClaim(
        'webhook.retry_count',
        'webhook.retry_count must be a whole number from 0',
      );
    }
    return webhook as unknown as WebhookClaim;
  },

  payloadRule({ hash }, method) {
    if (method !== 'POST') {
      throw new WebhookPayloadError('method_not_allowed', 'swt-draft-02 is sent by POST only', {
        methods: ['POST'],
      });
    }
    // The draft requires a hash for every body, so `requireHash` has no effect.
    return hash === undefined
      ? { kind: 'empty' }
      : { kind: 'digest', hashes: [parsePayloadHash(hash, NAMES)], emptyBody: 'refused' };
  },

  attempt: ({ retry_count: retryCount }) => (retryCount === undefined ? undefined : retryCount + 1),

  writeClaim(event, { data, hash, size, retryCount }) {
    if (data !== undefined) {
      throw invalidClaim(
        'webhook.data',
        'swt-draft-02 carries no inline data: send it in the body of a POST',
      );
    }
    const isEmpty = hash === undefined || size === 0;
    const hashMember = isEmpty ? '' : `,"hash":"${NAMES[hash.algorithm]}:${hash.hex}"`;
    const retryMember = retryCount === undefined ? '' : `,"retry_count":${retryCount}`;
    return `{"event":"${event}"${hashMember}${retryMember}}`;
  },
};

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
