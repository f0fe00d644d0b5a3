import {
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  generateKeyPairSync,
} from 'node:crypto';
import { beforeAll, describe, expect, it } from '@jest/globals';
import { jwtVerify } from 'jose';
import { createTokenVerifier, WebhookTokenError } from '../../lib/token/index.js';
import type { KeyMaterial } from '../../lib/token/keys/key-material.js';
import { Mulberry32 } from './mulberry32.js';
import {
  forge,
  SIGNED,
  signEs256,
  signHs256,
  UNSIGNED,
  type Mutation,
  type Sign,
} from './token-mutations.js';

const NOW = 1_760_000_000;
const ISSUER = 'https://shop.example';
const SECRET = 'a-secret-of-this-test-alone-0123456789';

const CLAIMS = {
  iss: ISSUER,
  iat: NOW,
  nbf: NOW,
  exp: NOW + 300,
  jti: '6f1c2a9e-0001',
  webhook: { event: 'order.created', data: { id: 'o-1', total: 42, note: 'Größe' } },
};

/** Every other token is so large that its data is parsed separately. */
const LARGE_CLAIMS = {
  ...CLAIMS,
  webhook: {
    event: 'order.created',
    data: { lines: Array.from({ length: 60 }, (_, i) => ({ sku: `sku-${i}`, note: 'Größe "L"' })) },
  },
};

/** How many times as many tokens as in the suite: `npm run test:differential` asks for more than 100,000. */
const SCALE = Number(process.env['DIFFERENTIAL_SCALE'] ?? 1);

interface Judged {
  readonly mutations: readonly string[];
  readonly token: string;
  /** The claims as accepted, or the code of the refusal. */
  readonly ours: string;
  readonly joses: string;
  readonly weAccept: boolean;
  readonly joseAccepts: boolean;
}

interface Party {
  readonly alg: 'HS256' | 'ES256';
  readonly sign: Sign;
  readonly key: KeyMaterial;
  readonly joseKey: Parameters<typeof jwtVerify>[1];
}

const hs256: Party = {
  alg: 'HS256',
  sign: signHs256(SECRET),
  key: SECRET,
  joseKey: createSecretKey(Buffer.from(SECRET)),
};

function es256(): Party {
  const { privateKey, publicKey } = generateKeyPairSync('ec', {
    namedCurve: 'P-256',
    publicKeyEncoding: { type: 'spki', format: 'pem' },
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  });
  return {
    alg: 'ES256',
    sign: signEs256(createPrivateKey(privateKey)),
    key: publicKey,
    joseKey: createPublicKey(publicKey),
  };
}

async function judge(
  { alg, sign, key, joseKey }: Party,
  plan: readonly (readonly Mutation[])[],
  seed: number,
): Promise<Judged[]> {
  const random = new Mulberry32(seed);
  const verifier = createTokenVerifier({
    issuers: [{ issuer: ISSUER, keys: [{ alg, key }] }],
    now: () => NOW,
  });
  const judged: Judged[] = [];
  for (const [number, mutations] of plan.entries()) {
    const claims = number % 2 === 0 ? CLAIMS : LARGE_CLAIMS;
    const token = forge({ alg, typ: 'JWT' }, claims, sign, mutations, random);
    const [ours, weAccept] = await verdict(
      async () => (await verifier.verify(token)).claims,
      ourCode,
    );
    const [joses, joseAccepts] = await verdict(
      async () =>
        (
          await jwtVerify(token, joseKey, {
            algorithms: [alg],
            typ: 'JWT',
            issuer: ISSUER,
            requiredClaims: ['iss', 'exp', 'iat', 'jti', 'webhook'],
            currentDate: new Date(NOW * 1_000),
            clockTolerance: 60,
          })
        ).payload,
      () => 'refused',
    );
    judged.push({
      mutations: mutations.map(({ name }) => name),
      token,
      ours,
      joses,
      weAccept,
      joseAccepts,
    });
  }
  return judged;
}

async function verdict(
  verify: () => Promise<object>,
  code: (error: unknown) => string,
): Promise<[string, boolean]> {
  try {
    return [JSON.stringify(await verify()), true];
  } catch (error) {
    return [code(error), false];
  }
}

/** A token must not cause any other error than our own. */
function ourCode(error: unknown): string {
  if (!(error instanceof WebhookTokenError)) throw error;
  return error.code;
}

/** Each mutation alone, several times; then mixtures of two and three. */
function plan(rounds: number, mixtures: number, seed: number): Mutation[][] {
  const random = new Mulberry32(seed);
  const all = [...SIGNED, ...UNSIGNED];
  return [
    ...all.flatMap((mutation) => Array.from({ length: rounds }, () => [mutation])),
    ...Array.from({ length: mixtures }, () =>
      Array.from({ length: 2 + random.below(2) }, () => random.pick(all)),
    ),
  ];
}

/** Single mutations that jose accepts and this package refuses, with the codes. */
function stricter(judged: readonly Judged[]): Record<string, string[]> {
  const found = new Map<string, Set<string>>();
  for (const { mutations, ours, weAccept, joseAccepts } of judged) {
    if (mutations.length !== 1 || weAccept || !joseAccepts) continue;
    const [name] = mutations as [string];
    found.set(name, (found.get(name) ?? new Set()).add(ours));
  }
  return Object.fromEntries([...found].map(([name, codes]) => [name, [...codes].sort()]));
}

/** Tokens that a webhook receiver should refuse and a general JWT library need not. */
const STRICTER_THAN_JOSE: Readonly<Record<string, readonly string[]>> = {
  'a member that replaces a prototype': ['invalid_claim'],
  'a byte of the claims': [
    'invalid_claim',
    'missing_claim',
    'token_not_yet_valid',
    'token_too_old',
  ],
  // Only unused bits of the last character of the signature: one change in 700.
  'a character changed': ['bad_signature'],
  'a byte order mark': ['invalid_token'],
  'a digit of the claims': ['invalid_claim', 'token_too_old'],
  'a foreign character': ['bad_signature'],
  'a foreign character in the claims': ['invalid_token'],
  'a foreign character in the header': ['invalid_token'],
  'a member of the claims twice': ['invalid_claim'],
  'a member of the header twice': ['invalid_token'],
  'claim aud': ['invalid_claim', 'wrong_audience'],
  'claim exp': ['invalid_claim', 'token_too_old'],
  'claim iat': ['invalid_claim', 'token_not_yet_valid', 'token_too_old'],
  'claim jti': ['invalid_claim'],
  'claim nbf': ['invalid_claim'],
  'claim sub': ['invalid_claim'],
  'claim txn': ['invalid_claim'],
  'claim webhook': ['invalid_claim', 'missing_claim'],
  'header b64': ['invalid_token'],
  'header kid': ['invalid_token'],
  'header zip': ['invalid_token'],
  'something behind': ['bad_signature'],
  'unused bits of the claims': ['invalid_token'],
  'unused bits of the signature': ['bad_signature'],
  'webhook.data': ['invalid_claim'],
  'webhook.event': ['invalid_claim', 'missing_claim'],
  'webhook.hash': ['invalid_claim'],
};

let judgements: Record<Party['alg'], Judged[]>;

beforeAll(async () => {
  judgements = {
    HS256: await judge(hs256, plan(90 * SCALE, 1_500 * SCALE, 1), 2),
    ES256: await judge(es256(), plan(30, 500, 3), 4),
  };
}, 60_000 * SCALE);

describe.each([
  ['HS256', 5_000 * SCALE],
  ['ES256', 1_500],
] as const)('mutated %s tokens', (alg, atLeast) => {
  it('are accepted and refused in sufficient numbers', () => {
    const judged = judgements[alg];

    expect(judged.length).toBeGreaterThanOrEqual(atLeast);
    expect(judged.filter((one) => one.weAccept).length).toBeGreaterThan(judged.length / 40);
    expect(judged.filter((one) => !one.joseAccepts).length).toBeGreaterThan(judged.length / 4);
  });

  it('are never accepted if jose refuses them', () => {
    const lenient = judgements[alg].filter((one) => one.weAccept && !one.joseAccepts);

    expect(lenient).toEqual([]);
  });

  it('have the claims that jose returns', () => {
    const different = judgements[alg].filter((one) => one.weAccept && one.ours !== one.joses);

    expect(different).toEqual([]);
  });
});

it('is stricter than jose in the listed cases only', () => {
  const found = Object.entries(stricter(judgements.HS256));

  // More tokens find more of the list; none may find anything else.
  expect(found.length).toBeGreaterThan(20);
  for (const [name, codes] of found) {
    expect([name, STRICTER_THAN_JOSE[name]]).toEqual([name, expect.arrayContaining(codes)]);
  }
});
