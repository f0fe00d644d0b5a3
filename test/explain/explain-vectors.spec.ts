import { describe, expect, it } from '@jest/globals';
import { EXPLANATION_STEPS } from '../../lib/explain/webhook-explanation.interface.js';
import { ReceiverDrain } from '../../lib/receiver/receiver.drain.js';
import { resolveReceivers } from '../../lib/receiver/receiver-options.resolver.js';
import type { WebhookRequestLike } from '../../lib/request/incoming-webhook.js';
import { WebhookVerifier } from '../../lib/receiver/webhook.verifier.js';
import { TestClock } from '../../lib/testing/test-clock.js';
import { isWebhookError, type TrustedIssuer } from '../../lib/token/index.js';
import { GROUPS, readVectors, verifierOptions, type Vector } from '../token/vector-file.js';

function receiverOf(vector: Vector): WebhookVerifier {
  const { issuers, now: _, ...rest } = verifierOptions(vector);
  const { receivers, faults } = resolveReceivers(
    {
      ...rest,
      issuers: issuers as readonly TrustedIssuer[],
      requireHash: vector.verifier.requireHash,
    },
    new TestClock(vector.now * 1_000),
  );
  expect(faults).toEqual([]);
  return new WebhookVerifier(receivers, new ReceiverDrain());
}

async function codeOf(verified: Promise<unknown>): Promise<string> {
  try {
    await verified;
    return 'accepted';
  } catch (error) {
    if (!isWebhookError(error)) throw error;
    return error.code;
  }
}

describe.each(GROUPS)('an explanation of the vectors: %s', (group) => {
  const vectors = readVectors(group);

  it.each(vectors.map((vector): [string, Vector] => [vector.name, vector]))(
    '%s',
    async (_, vector) => {
      const body = Buffer.from(vector.body ?? '', 'base64');
      const request: WebhookRequestLike = {
        method: vector.method,
        headers: { authorization: `Bearer ${vector.token}` },
        body,
      };
      const verifier = receiverOf(vector);

      const explanation = await verifier.explain(request);
      const text = JSON.stringify(explanation);
      const failed = explanation.steps.filter(({ outcome }) => outcome === 'failed');

      expect(explanation.code ?? explanation.verdict).toBe(await codeOf(verifier.verify(request)));
      expect(explanation.steps.map(({ step }) => step)).toEqual(EXPLANATION_STEPS);
      expect(failed.map(({ code }) => code)).toEqual(
        explanation.verdict === 'accepted' ? [] : [explanation.code],
      );
      expect(JSON.parse(text)).toEqual(explanation);
      for (const segment of vector.token.split('.').filter(({ length }) => length >= 16)) {
        expect(text).not.toContain(segment);
      }
      expect(text).not.toContain('test-only-secret');
      if (body.length > 8) expect(text).not.toContain(JSON.stringify(body.toString()).slice(1, -1));
    },
  );

  it('knows verdict and code from the vector itself, where a header can carry the token', async () => {
    const carried = vectors.filter(({ token }) => /^[A-Za-z0-9._~+/-]+=*$/.test(token));
    expect(carried.length).toBeGreaterThan(10);

    for (const vector of carried) {
      const explanation = await receiverOf(vector).explain({
        method: vector.method,
        headers: { authorization: `Bearer ${vector.token}` },
        body: Buffer.from(vector.body ?? '', 'base64'),
      });
      const expected = vector.expect.accepted ? undefined : vector.expect.code;
      expect([vector.name, explanation.code]).toEqual([vector.name, expected]);
    }
  });
});
