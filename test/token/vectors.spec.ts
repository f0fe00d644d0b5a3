import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect, promisify } from 'node:util';
import { describe, expect, it } from '@jest/globals';
import { compactVerify, importJWK, type JWK } from 'jose';
import {
  createTokenVerifier,
  isWebhookError,
  verifyWebhookPayload,
  type VerifiedWebhookToken,
} from '../../lib/token/index.js';
import { WEBHOOK_PROFILES } from '../../lib/token/webhook-token.constants.js';
import {
  DRAFT_GROUPS,
  GROUPS,
  readSendVectors,
  readVectors,
  SEND_GROUPS,
  VECTORS,
  verifierOptions,
  type Vector,
} from './vector-file.js';
import { problemsOfFile } from './vector-schema.js';

type Outcome = Vector['expect'];

const RECEIVED = [...GROUPS, ...DRAFT_GROUPS];

function payloadOutcome(vector: Vector, verified: VerifiedWebhookToken): Outcome {
  const request = {
    method: vector.method,
    body: vector.body === undefined ? undefined : Buffer.from(vector.body, 'base64'),
    requireHash: vector.verifier.requireHash,
    profile: verified.profile,
  };
  const { source, bodyVerified } = verifyWebhookPayload(verified.claims, request);
  return { accepted: true, payload: source, bodyVerified };
}

/** Verifies the token, then the body. If every key is a secret, the verification must be synchronous. */
async function outcomeOf(vector: Vector): Promise<Outcome> {
  const verified = createTokenVerifier(verifierOptions(vector)).verify(vector.token);
  const onlySecrets = vector.verifier.issuers.every(({ keys = [] }) =>
    keys.every(({ secret }) => secret !== undefined),
  );
  if (onlySecrets) expect(verified).not.toBeInstanceOf(Promise);
  return payloadOutcome(vector, await verified);
}

function expectNothingOf(token: string, error: Error): void {
  const printed = [
    error.stack,
    JSON.stringify(error),
    inspect(error, { depth: Infinity, showHidden: true }),
  ].join();
  for (const segment of token.split('.').filter(({ length }) => length >= 16)) {
    expect(printed).not.toContain(segment);
  }
  expect(printed).not.toContain('test-only-secret');
}

describe.each(RECEIVED)('vectors: %s', (group) => {
  const vectors = readVectors(group);

  it.each(vectors.map((vector): [string, Vector] => [vector.name, vector]))(
    '%s',
    async (_, vector) => {
      let error: unknown;
      try {
        expect(await outcomeOf(vector)).toEqual(vector.expect);
        return;
      } catch (thrown) {
        error = thrown;
      }
      // Any other error fails the case: a failed expectation, or a crash.
      if (!isWebhookError(error)) throw error;
      expect({ accepted: false, code: error.code }).toEqual(vector.expect);
      expectNothingOf(vector.token, error);
    },
  );

  it('has no accepted token that jose refuses', async () => {
    const accepted = vectors.filter((vector) => vector.expect.accepted);

    for (const vector of accepted) {
      expect([vector.name, await joseAccepts(vector)]).toEqual([vector.name, true]);
    }
    expect(accepted).not.toHaveLength(0);
  });

  it('has a unique name and a reason for each case', () => {
    expect(new Set(vectors.map(({ name }) => name)).size).toBe(vectors.length);
    for (const { reason } of vectors) expect(reason).toMatch(/^\S.*\.$/s);
  });
});

describe('vector files', () => {
  it('cover every wire format', () => {
    const profiles = [...GROUPS, ...DRAFT_GROUPS]
      .flatMap((group) => readVectors(group))
      .concat(SEND_GROUPS.flatMap((group) => readSendVectors(group)) as never[])
      .map(({ profile }) => profile);

    expect([...new Set(profiles)].sort()).toEqual([...WEBHOOK_PROFILES].sort());
  });

  it.each([...GROUPS, ...DRAFT_GROUPS, ...SEND_GROUPS])('match their schema: %s', async (group) => {
    expect(problemsOfFile(await readFile(join(VECTORS, `${group}.json`), 'utf8'))).toEqual([]);
  });

  it.each([
    ['an unknown member', '"name":', '"color": "red", "name":'],
    ['a missing member', '"reason":', '"color":'],
    ['a wrong method', '"method": "HEAD"', '"method": "GET"'],
    ['a number as a string', '"now": 1760000000', '"now": "1760000000"'],
    ['an unknown wire format', '"profile": "webhook-token"', '"profile": "swt"'],
    ['an unknown algorithm', '"alg": "RS256"', '"alg": "none"'],
    ['a code in another format', '"code": "invalid_token"', '"code": "Invalid token"'],
  ])('do not match it with %s', async (_, found, changed) => {
    const text = await readFile(join(VECTORS, 'header.json'), 'utf8');

    expect(text).toContain(found);
    expect(problemsOfFile(text.replace(found, changed))).not.toEqual([]);
  });

  it('are up to date with the generator', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'webhook-vectors-'));
    try {
      await promisify(execFile)(process.execPath, [join(VECTORS, 'generate.mjs'), directory]);
      const made = (await readdir(directory)).sort();

      const published = [...GROUPS, ...DRAFT_GROUPS, ...SEND_GROUPS];
      expect(made).toEqual(published.map((group) => `${group}.json`).sort());
      for (const name of made) {
        const committed = await readFile(join(VECTORS, name), 'utf8');
        expect([name, (await readFile(join(directory, name), 'utf8')) === committed]).toEqual([
          name,
          true,
        ]);
      }
    } finally {
      await rm(directory, { recursive: true });
    }
  });
});

/** Whether a configured key verifies the signature according to jose. */
async function joseAccepts({ token, verifier }: Vector): Promise<boolean> {
  for (const { secrets = [], keys = [] } of verifier.issuers) {
    const all = [
      ...secrets.map((secret) => ({ alg: 'HS256', secret, publicJwk: undefined })),
      ...keys,
    ];
    for (const { alg, secret, publicJwk } of all) {
      const key =
        secret === undefined
          ? await importJWK(publicJwk as JWK, alg)
          : new TextEncoder().encode(secret);
      const holds = await compactVerify(token, key, { algorithms: [alg] }).then(
        () => true,
        () => false,
      );
      if (holds) return true;
    }
  }
  return false;
}
