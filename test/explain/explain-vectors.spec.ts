import { describe, expect, it } from '@jest/globals';
import { explainRequest } from '../../lib/explain/explain-request.js';
import { EXPLANATION_STEPS } from '../../lib/explain/webhook-explanation.interface.js';
import { fromRequestLike } from '../../lib/receiver/request/webhook-request-like.js';
import {
  createTokenVerifier,
  isWebhookError,
  verifyWebhookPayload,
} from '../../lib/token/index.js';
import { GROUPS, readVectors, verifierOptions, type Vector } from '../token/vector-file.js';

/** What the core says: token, then body. */
async function verdict(vector: Vector): Promise<string> {
  try {
    const { claims } = await createTokenVerifier(verifierOptions(vector)).verify(vector.token);
    const body = Buffer.from(vector.body ?? '', 'base64');
    const { requireHash } = vector.verifier;
    verifyWebhookPayload(claims, { method: vector.method, body, requireHash });
    return 'accepted';
  } catch (error) {
    if (!isWebhookError(error)) throw error;
    return error.code;
  }
}

/** A token that no Authorization header could carry never gets as far as the verifier. */
function fitsHeader({ token }: Vector): boolean {
  return /^[A-Za-z0-9._~+/-]+=*$/.test(token);
}

describe.each(GROUPS)('an explanation of the vectors: %s', (group) => {
  const vectors = readVectors(group);

  it.each(vectors.map((vector): [string, Vector] => [vector.name, vector]))(
    '%s',
    async (_, vector) => {
      const body = Buffer.from(vector.body ?? '', 'base64');
      const explanation = await explainRequest(
        fromRequestLike({
          method: vector.method,
          headers: { authorization: `Bearer ${vector.token}` },
          body,
        }),
        {
          tokens: createTokenVerifier(verifierOptions(vector)),
          allowedEvents: new Map(),
          requireHash: vector.verifier.requireHash ?? true,
          maxBodyBytes: 1_000_000,
        },
      );
      const expected = await verdict(vector);
      const failed = explanation.steps.filter(({ outcome }) => outcome === 'failed');

      expect(explanation.steps.map(({ step }) => step)).toEqual(EXPLANATION_STEPS);
      if (fitsHeader(vector)) {
        expect(explanation.code ?? explanation.verdict).toBe(expected);
      } else {
        expect(['missing_token', 'malformed_authorization']).toContain(explanation.code);
      }
      expect(failed.map(({ code }) => code)).toEqual(
        explanation.verdict === 'accepted' ? [] : [explanation.code],
      );
      expect(JSON.parse(JSON.stringify(explanation))).toEqual(explanation);
      const text = JSON.stringify(explanation);
      for (const segment of vector.token.split('.').filter(({ length }) => length >= 16)) {
        expect(text).not.toContain(segment);
      }
      expect(text).not.toContain('test-only-secret');
      if (body.length > 8) expect(text).not.toContain(body.toString());
    },
  );
});
