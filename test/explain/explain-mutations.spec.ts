import { describe, expect, it } from '@jest/globals';
import { isWebhookError } from 'nestjs-webhook-token/token';
import { Mulberry32 } from '../token/mulberry32.js';
import { forge, SIGNED, signHs256, UNSIGNED } from '../token/token-mutations.js';
import { hashOf, ISSUER, MARKER, NOW, SECRET, verifierOf } from './receiver-bench.js';

const ROUNDS = 1_000;
const BODY = JSON.stringify({ note: MARKER });

describe('an explanation of mutated requests', () => {
  it('agrees with verify and shows no token, payload or secret', async () => {
    const random = new Mulberry32(7);
    const iat = NOW / 1_000;
    const own = { issuer: ISSUER, secret: SECRET };
    const other = { issuer: 'https://billing.example', secret: `${SECRET}-billing` };
    const verifiers = [[own], [own, other]].map((issuers) => verifierOf({ issuers }));
    const codes = new Map<string, number>();

    for (let round = 0; round < ROUNDS; round++) {
      const verifier = verifiers[round % 2]!;
      const webhook = { event: 'order.created', data: { [MARKER]: MARKER }, hash: hashOf(BODY) };
      const claims = { iss: ISSUER, iat, exp: iat + 300, jti: `j${round}`, webhook };
      const token = forge(
        { alg: 'HS256', typ: 'JWT' },
        claims,
        signHs256(random.pick([SECRET, SECRET, `${SECRET}\n`])),
        [random.pick([...SIGNED, ...UNSIGNED])],
        random,
      );
      const request = {
        method: random.pick(['POST', 'POST', 'HEAD', 'PUT']),
        headers: {
          authorization: random.pick(['Bearer ', 'Bearer ', 'Bearer ', '', 'Token ']) + token,
          'content-type': 'application/json',
          'content-encoding': random.pick([undefined, undefined, 'gzip']),
        },
        body: random.pick([BODY, BODY, `${BODY}\n`, '']),
      };

      const explanation = await verifier.explain(request);
      const text = JSON.stringify(explanation);
      const failed = explanation.steps.filter(({ outcome }) => outcome === 'failed');
      const code = await verifier.verify(request).then(
        () => 'accepted',
        (error: unknown) => {
          if (!isWebhookError(error)) throw error;
          // One mutation gives every token the same txn, and explanations do not check for replays.
          return error.code === 'replayed' ? 'accepted' : error.code;
        },
      );

      expect([token, explanation.code ?? explanation.verdict]).toEqual([token, code]);
      expect(failed).toHaveLength(code === 'accepted' ? 0 : 1);
      const segments = token.split('.').filter(({ length }) => length >= 20);
      for (const hidden of [...segments, MARKER, SECRET]) expect(text).not.toContain(hidden);
      codes.set(code, (codes.get(code) ?? 0) + 1);
    }
    expect(codes.size).toBeGreaterThan(8);
  });
});
