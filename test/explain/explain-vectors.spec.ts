import { describe, expect, it } from '@jest/globals';
import { TestClock } from 'nestjs-webhook-token/testing';
import type { WebhookRequestLike } from 'nestjs-webhook-token';
import { EXPLANATION_STEPS } from '../../lib/explain/webhook-explanation.interface.js';
import { type TestVerifier, verifierFor } from '../fixtures/verifier-for.js';
import { GROUPS, readVectors, verifierOptions, type Vector } from '../token/vector-file.js';

function receiverOf(vector: Vector): TestVerifier {
  const { now: _, ...options } = verifierOptions(vector);
  const { requireHash } = vector.verifier;
  return verifierFor({ ...options, requireHash }, new TestClock(vector.now * 1_000));
}

/** The first vector of each outcome, of those whose token an Authorization header can carry. */
function sampledVectors(): [string, Vector][] {
  const sample = new Map<string, Vector>();
  for (const vector of GROUPS.flatMap((group) => readVectors(group))) {
    const outcome = vector.expect.accepted ? 'accepted' : vector.expect.code;
    const isCarried = /^[A-Za-z0-9._~+/-]+=*$/.test(vector.token);
    if (isCarried && !sample.has(outcome)) sample.set(outcome, vector);
  }
  return [...sample];
}

describe('an explanation of a test vector', () => {
  it.each(sampledVectors())('agrees with the verifier on %s', async (outcome, vector) => {
    const body = Buffer.from(vector.body ?? '', 'base64');
    const request: WebhookRequestLike = {
      method: vector.method,
      headers: { authorization: `Bearer ${vector.token}` },
      body,
    };

    const explanation = await receiverOf(vector).explain(request);
    const text = JSON.stringify(explanation);
    const failed = explanation.steps.filter((step) => step.outcome === 'failed');

    expect(explanation.code ?? explanation.verdict).toBe(outcome);
    expect(explanation.steps.map(({ step }) => step)).toEqual(EXPLANATION_STEPS);
    expect(failed.map(({ code }) => code)).toEqual(outcome === 'accepted' ? [] : [outcome]);
    expect(JSON.parse(text)).toEqual(explanation);
    for (const segment of vector.token.split('.').filter(({ length }) => length >= 16)) {
      expect(text).not.toContain(segment);
    }
    expect(text).not.toContain('test-only-secret');
    if (body.length > 8) expect(text).not.toContain(JSON.stringify(body.toString()).slice(1, -1));
  });
});
