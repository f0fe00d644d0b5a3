import { readBearerToken } from '../../request/bearer-token.js';
import { contentFingerprint, digestFingerprint } from '../../request/content-fingerprint.js';
import { openRequest } from '../../request/open-request.js';
import { rulesOf } from '../../token/profiles/profile-choice.js';
import { readReceipt } from '../../token/webhook-receipt.js';
import type { WebhookScheme } from './webhook-scheme.js';

/** A webhook token in the Authorization header, in any of the receiver's profiles. */
export const webhookToken: WebhookScheme = {
  async isSigned(headers, { tokens }) {
    try {
      await tokens.verify(readBearerToken(headers));
      return true;
    } catch {
      return false;
    }
  },

  async verify(incoming, receiver) {
    const { method, token, payload } = await openRequest(incoming, receiver);
    const { claims, profile } = token;
    const { data, body, digest, isSpooled, bodyVerified, contentType } = payload;
    const name = claims.webhook.event;
    const attempt = rulesOf(profile).attempt(claims.webhook);
    return {
      event: {
        claims,
        profile,
        method,
        attempt,
        data,
        body,
        isSpooled,
        bodyVerified,
        contentType,
      },
      body,
      fingerprint:
        digest === undefined ? contentFingerprint(name, data) : digestFingerprint(name, digest),
    };
  },

  claims({ method, headers }) {
    try {
      return readReceipt(readBearerToken(headers), { method, bodyBytes: 0 });
    } catch {
      return {};
    }
  },
};
