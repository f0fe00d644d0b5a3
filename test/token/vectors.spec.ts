import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from '@jest/globals';
import { compactVerify, importJWK, type JWK } from 'jose';
import {
  createTokenVerifier,
  isWebhookError,
  verifyWebhookPayload,
  verifyWebhookToken,
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
import { faultsOfFile } from './vector-schema.js';

type Outcome = Vector['expect'];

const RECEIVED = [...GROUPS, ...DRAFT_GROUPS];

/** Token first, then the body, as a receiver does it. */
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

/** A refusal's code; anything else than an error of this package fails the case. */
function refusal(error: unknown): Outcome {
  if (!isWebhookError(error)) throw error;
  return { accepted: false, code: error.code };
}

describe.each(RECEIVED)('vectors: %s', (group) => {
  const vectors = readVectors(group);
  const table = vectors.map((vector): [string, Vector] => [vector.name, vector]);

  it.each(table)('%s', async (_, vector) => {
    const options = verifierOptions(vector);

    const oneShot = await verifyWebhookToken(vector.token, options)
      .then((verified) => payloadOutcome(vector, verified))
      .catch(refusal);

    expect(oneShot).toEqual(vector.expect);
  });

  it('is decided at once where every key is a secret', () => {
    const synchronous = vectors.filter(({ verifier }) =>
      verifier.issuers.every(({ keys = [] }) => keys.every(({ secret }) => secret !== undefined)),
    );

    for (const vector of synchronous) {
      const verifier = createTokenVerifier(verifierOptions(vector));
      // Twice: the second time the header is remembered.
      for (const _ of [1, 2]) {
        expect([vector.name, decide(vector, () => verifier.verify(vector.token))]).toEqual([
          vector.name,
          vector.expect,
        ]);
      }
    }
    expect(synchronous.length).toBeGreaterThan(10);
  });

  it('accepts nothing that jose refuses', async () => {
    const accepted = vectors.filter((vector) => vector.expect.accepted);

    for (const vector of accepted) {
      expect([vector.name, await joseAccepts(vector)]).toEqual([vector.name, true]);
    }
    expect(accepted).not.toHaveLength(0);
  });

  it('names each case once, and says why', () => {
    expect(new Set(vectors.map(({ name }) => name)).size).toBe(vectors.length);
    for (const { reason } of vectors) expect(reason).toMatch(/^\S.*\.$/s);
  });
});

describe('vector files', () => {
  it('are about every wire format, and no other', () => {
    const profiles = [...GROUPS, ...DRAFT_GROUPS]
      .flatMap((group) => readVectors(group))
      .concat(SEND_GROUPS.flatMap((group) => readSendVectors(group)) as never[])
      .map(({ profile }) => profile);

    expect([...new Set(profiles)].sort()).toEqual([...WEBHOOK_PROFILES].sort());
  });

  it('hold enough for an implementation to be judged by', () => {
    const counts = new Map<string, number>();
    for (const { profile } of [...GROUPS, ...DRAFT_GROUPS].flatMap((group) => readVectors(group))) {
      counts.set(profile, (counts.get(profile) ?? 0) + 1);
    }

    expect(counts.get('webhook-token')).toBeGreaterThan(430);
    expect(counts.get('swt-draft-00')).toBeGreaterThan(60);
    expect(counts.get('swt-draft-02')).toBeGreaterThan(60);
    expect(SEND_GROUPS.flatMap((group) => readSendVectors(group)).length).toBeGreaterThan(40);
  });

  it.each([...GROUPS, ...DRAFT_GROUPS, ...SEND_GROUPS])(
    'follow their schema: %s',
    async (group) => {
      expect(faultsOfFile(await readFile(join(VECTORS, `${group}.json`), 'utf8'))).toEqual([]);
    },
  );

  it.each([
    ['a member nobody knows', '"name":', '"color": "red", "name":'],
    ['a missing member', '"reason":', '"color":'],
    ['a wrong method', '"method": "HEAD"', '"method": "GET"'],
    ['a number as a text', '"now": 1760000000', '"now": "1760000000"'],
    ['an unknown wire format', '"profile": "webhook-token"', '"profile": "swt"'],
    ['an unknown algorithm', '"alg": "RS256"', '"alg": "none"'],
    ['a code of another form', '"code": "invalid_token"', '"code": "Invalid token"'],
  ])('do not follow it with %s', async (_, found, changed) => {
    const text = await readFile(join(VECTORS, 'header.json'), 'utf8');

    expect(text).toContain(found);
    expect(faultsOfFile(text.replace(found, changed))).not.toEqual([]);
  });

  it('are what the generator makes', async () => {
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

function decide(vector: Vector, verify: () => unknown): Outcome {
  try {
    const verified = verify();
    if (verified instanceof Promise) throw new Error('a secret must be decided at once');
    return payloadOutcome(vector, verified as VerifiedWebhookToken);
  } catch (error) {
    return refusal(error);
  }
}

/** Whether some configured key verifies the signature, in an implementation that is not ours. */
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
