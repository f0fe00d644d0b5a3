/**
 * Runs generated tokens, bodies and keys through the built package: `node test/fuzz/run.mjs [--seed n] [--count n]`.
 *
 * Every error must be one of the package's, no message may contain part of a token or key, and no token with an invalid
 * signature may be accepted. A failure prints the seed and the number of the token, so that it can be reproduced.
 */
import { generateKeyPairSync } from 'node:crypto';
import { parseArgs } from 'node:util';
import {
  createTokenVerifier,
  isWebhookError,
  verifyWebhookPayload,
} from '../../dist/token/index.js';
import { parseKey } from '../../build/lib/token/keys/key-material.js';
import { WEBHOOK_PROFILES } from '../../build/lib/token/webhook-token.constants.js';
import {
  anyKey,
  anyToken,
  anyValue,
  CANARY,
  Chance,
  ISSUER,
  NOW,
  SECRET,
  secretOf,
} from './generators.mjs';

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: '1' },
    count: { type: 'string', default: '1000000' },
  },
});
const seed = Number(values.seed);
const count = Number(values.count);
if (!Number.isSafeInteger(seed) || !Number.isSafeInteger(count) || count < 1) {
  console.error('--seed must be an integer, and --count a positive integer');
  process.exit(2);
}

const ERRORS = new Set(['WebhookTokenError', 'WebhookPayloadError', 'WebhookConfigurationError']);
const MAX_PENDING_PROMISES = 256;
const CLOCK_SKEWS = [0, 0, 0, 0, -61, -60, 299, 300, 359, 360, 4_000];

const chance = new Chance(seed);
const pairs = [
  generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  generateKeyPairSync('ec', { namedCurve: 'secp256k1' }),
  generateKeyPairSync('rsa', { modulusLength: 2_048 }),
  generateKeyPairSync('rsa', { modulusLength: 1_024 }),
  generateKeyPairSync('ed25519'),
];
const samples = {
  jwks: pairs.flatMap((pair) => [
    pair.publicKey.export({ format: 'jwk' }),
    pair.privateKey.export({ format: 'jwk' }),
  ]),
  pems: pairs.flatMap((pair) => [
    pair.publicKey.export({ type: 'spki', format: 'pem' }),
    pair.privateKey.export({ type: 'pkcs8', format: 'pem' }),
  ]),
};

/** Seconds by which the receiver's clock is off. */
let clockSkew = 0;
const now = () => (NOW + clockSkew) * 1_000;
const own = { issuer: ISSUER, secret: SECRET };
const named = ['HS256', 'HS384', 'HS512'].map((alg) => ({
  kid: alg,
  alg,
  key: secretOf(alg),
}));
const other = { issuer: 'https://bank.example', secret: `${SECRET}-other` };
const asymmetric = { issuer: ISSUER, keys: [{ alg: 'ES256', key: pairs[0].publicKey }] };
const verifiers = [...WEBHOOK_PROFILES.map((profile) => [profile]), [...WEBHOOK_PROFILES]].flatMap(
  (profiles) =>
    [[own], [{ issuer: ISSUER, keys: named }], [own, other]].map((issuers) =>
      createTokenVerifier({ issuers, profiles, now }),
    ),
);
/** Key pairs verify off the event loop, which is slowest, so this verifier gets the fewest tokens. */
const asyncVerifier = createTokenVerifier({ issuers: [asymmetric], now });

const counts = new Map();
const tally = (name) => counts.set(name, (counts.get(name) ?? 0) + 1);

function fail(index, problem, subject) {
  console.error(`seed ${seed}, number ${index}: ${problem}`);
  console.error(subject);
  process.exit(1);
}

/** Checks that an error is one of the package's and contains no secret. */
function checkError(index, error, subject) {
  if (!isWebhookError(error) || !ERRORS.has(error.name))
    fail(index, `threw ${error?.stack ?? error}`, subject);
  if (`${error.message}${JSON.stringify(error)}`.includes(CANARY))
    fail(index, 'the error quotes secret data', subject);
  tally(error.code);
}

function checkAccepted(index, sample, verified) {
  if (!sample.holds) fail(index, 'a token with an invalid signature was accepted', sample);
  tally(`token accepted (${verified.profile})`);
  const body = chance.oneIn(3) ? chance.bytes(chance.below(40)) : sample.body;
  const method = chance.oneIn(5) ? chance.pick(['HEAD', 'POST']) : sample.method;
  const { profile } = verified;
  try {
    const { source } = verifyWebhookPayload(verified.claims, {
      method,
      body,
      profile,
      requireHash: !chance.oneIn(5),
    });
    tally(`payload accepted (${source})`);
  } catch (error) {
    checkError(index, error, { ...sample, method, body });
  }
}

function tryKey(index) {
  const input = anyKey(chance, samples);
  let parsed;
  try {
    parsed = parseKey(input, chance.pick(['sign', 'verify']));
  } catch (error) {
    fail(index, `parseKey threw ${error?.stack ?? error}`, input);
  }
  if ((parsed.key === undefined) === (parsed.problem === undefined))
    fail(index, 'parseKey returned both a key and a problem, or neither', input);
  if (parsed.problem?.includes(CANARY)) fail(index, 'the problem quotes the key', input);
  tally(parsed.problem === undefined ? 'key accepted' : 'key rejected');
}

function tryConfiguration(index) {
  const issuers = Array.from({ length: chance.below(3) }, () => ({
    issuer: chance.oneIn(2) ? ISSUER : anyValue(chance),
    keys: [anyKey(chance, samples)].map((key) => (key?.key === undefined ? { key } : key)),
  }));
  try {
    createTokenVerifier({
      issuers,
      clockTolerance: anyValue(chance),
      audience: chance.pick([undefined, 'a', '']),
    });
    tally('configuration accepted');
  } catch (error) {
    checkError(index, error, issuers);
  }
}

const started = performance.now();
let pending = [];
for (let index = 0; index < count; index++) {
  const sample = anyToken(chance, chance.pick(WEBHOOK_PROFILES));
  clockSkew = chance.pick(CLOCK_SKEWS);
  const verifier = chance.oneIn(50) ? asyncVerifier : chance.pick(verifiers);
  try {
    const verified = verifier.verify(sample.token);
    if (verified instanceof Promise) {
      pending.push(
        verified.then(
          () => fail(index, 'a MAC was accepted as a signature', sample),
          (error) => checkError(index, error, sample),
        ),
      );
    } else {
      checkAccepted(index, sample, verified);
    }
  } catch (error) {
    checkError(index, error, sample);
  }
  if (chance.oneIn(10)) tryKey(index);
  if (chance.oneIn(1_000)) tryConfiguration(index);
  if (pending.length >= MAX_PENDING_PROMISES) {
    await Promise.all(pending);
    pending = [];
  }
}
await Promise.all(pending);

const seconds = (performance.now() - started) / 1_000;
for (const [name, times] of [...counts].sort(([, a], [, b]) => b - a)) {
  console.log(`${String(times).padStart(9)}  ${name}`);
}
console.log(`${count} tokens, seed ${seed}, ${seconds.toFixed(1)} s: nothing unexpected`);
