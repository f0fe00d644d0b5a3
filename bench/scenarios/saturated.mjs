import { webcrypto } from 'node:crypto';
import { jwtVerify } from 'jose';
import { createTokenSigner, createTokenVerifier } from '../../dist/token/index.js';
import { ISSUER, SECRET } from '../event.mjs';
import { FullThreadPool } from '../saturated/thread-pool.mjs';

const DATA = { id: 'ord_1' };
/** Number of our verifications for each one by jose. */
const SAMPLES = { full: 500, quick: 100 };
const OURS = 20;

/** Latency of a verification with an idle and with a full libuv thread pool, in wall time. */
export async function run({ quick = false, only = '' }) {
  const variants = await made();
  const count = SAMPLES[quick ? 'quick' : 'full'];
  const results = [];
  for (const state of ['an idle', 'a full']) {
    const title = `latency of a verification, with ${state} thread pool`;
    if (!title.includes(only)) continue;
    const pool = state === 'a full' ? new FullThreadPool() : undefined;
    try {
      results.push(print(title, await sample(variants, count)));
    } finally {
      await pool?.stop();
    }
    if (pool?.done === 0) throw new Error('The thread pool was not busy.');
  }
  return results;
}

async function made() {
  const signer = createTokenSigner({ issuer: ISSUER, key: SECRET });
  const forger = createTokenSigner({ issuer: ISSUER, key: `${SECRET}-of-another-issuer` });
  const [token, forged] = [signer, forger].map((by) => by.sign({ event: 'a.b', data: DATA }));
  const verifier = createTokenVerifier({ issuers: [{ issuer: ISSUER, secret: SECRET }] });
  const algorithm = { name: 'HMAC', hash: 'SHA-256' };
  const bytes = Buffer.from(SECRET);
  const key = await webcrypto.subtle.importKey('raw', bytes, algorithm, false, ['verify']);
  const variants = {
    'nestjs-webhook-token': (text) => verifier.verify(text),
    'jose, CryptoKey': (text) => jwtVerify(text, key, { algorithms: ['HS256'], issuer: ISSUER }),
  };
  const runs = [];
  for (const [name, verify] of Object.entries(variants)) {
    await verify(token);
    const refused = await Promise.resolve(forged)
      .then(verify)
      .then(
        () => false,
        () => true,
      );
    if (!refused) throw new Error(`${name} accepts a forged token.`);
    runs.push({ name, verify: () => verify(token), times: name.startsWith('jose') ? 1 : OURS });
  }
  for (let i = 0; i < 3_000; i++) for (const { verify } of runs) await verify();
  return runs;
}

async function sample(variants, count) {
  const taken = variants.map(({ name }) => ({ name, samples: [] }));
  for (let i = 0; i < count; i++) {
    for (const [index, { verify, times }] of variants.entries()) {
      for (let time = 0; time < times; time++) {
        const start = performance.now();
        const verified = verify();
        if (verified instanceof Promise) await verified;
        taken[index].samples.push(performance.now() - start);
      }
    }
    // A turn of the event loop, in which tasks of the pool complete and new ones start.
    await new Promise((resolve) => setImmediate(resolve));
  }
  return taken;
}

function print(title, taken) {
  const rows = taken.flatMap(({ name, samples }) => {
    const all = samples.toSorted((a, b) => a - b);
    const at = (share) => all[Math.floor(all.length * share)];
    const row = (what, value) => ({ name: `${name}, ${what}, ms`, value, samples: all.length });
    return [row('p50', at(0.5)), row('p99', at(0.99))];
  });
  console.log(`\n${title}`);
  for (const { name, value, samples } of rows) {
    console.log(`  ${name.padEnd(38)} ${value.toFixed(3).padStart(9)}  (${samples} samples)`);
  }
  return { title, unit: 'ms', rows };
}
