import { createHmac, createSecretKey, timingSafeEqual, webcrypto } from 'node:crypto';
import { createSigner, createVerifier } from 'fast-jwt';
import { jwtVerify, SignJWT } from 'jose';
import jsonwebtoken from 'jsonwebtoken';
import { createTokenSigner, createTokenVerifier } from '../../dist/token/index.js';
import { Webhook } from 'standardwebhooks';
import { dataOf, ISSUER, SECRET } from '../event.mjs';
import { compare } from '../harness.mjs';

const key = createSecretKey(Buffer.from(SECRET));
const cryptoKey = await webcrypto.subtle.importKey(
  'raw',
  Buffer.from(SECRET),
  { name: 'HMAC', hash: 'SHA-256' },
  false,
  ['sign', 'verify'],
);

const SIZES = { '300 B': 0, '1 kB': 7, '6 kB': 62 };

export async function run(options) {
  const results = [];
  for (const [size, items] of Object.entries(SIZES)) {
    for (const compared of [verify, sign]) {
      const title = `${compared.name} HS256, ${size} of data`;
      if (!title.includes(options.only ?? '')) continue;
      results.push(await compared(title, dataOf(items), options));
    }
  }
  return results;
}

async function verify(title, data, options) {
  const token = createTokenSigner({ issuer: ISSUER, key: SECRET }).sign({
    event: 'order.created',
    data,
  });
  const body = JSON.stringify({ event: 'order.created', data });
  const verifier = createTokenVerifier({ issuers: [{ issuer: ISSUER, secret: SECRET }] });
  const fastJwt = createVerifier({
    key: SECRET,
    algorithms: ['HS256'],
    allowedIss: ISSUER,
    cache: false,
  });
  const webhook = new Webhook(Buffer.from(SECRET).toString('base64'));
  const now = new Date();
  const headers = {
    'webhook-id': 'msg_1',
    'webhook-timestamp': String(Math.floor(now / 1_000)),
    'webhook-signature': webhook.sign('msg_1', now, body),
  };
  return compare(
    title,
    {
      'node:crypto, signature and JSON only': () => floorVerify(token),
      'nestjs-webhook-token': () => verifier.verify(token),
      'fast-jwt, no cache': () => fastJwt(token),
      'jsonwebtoken, KeyObject': () =>
        jsonwebtoken.verify(token, key, { algorithms: ['HS256'], issuer: ISSUER }),
      'standardwebhooks, same data as body': () => webhook.verify(body, headers),
      'jose, CryptoKey': () =>
        jwtVerify(token, cryptoKey, { algorithms: ['HS256'], issuer: ISSUER }),
    },
    options,
  );
}

async function sign(title, data, options) {
  const signer = createTokenSigner({ issuer: ISSUER, key: SECRET });
  const fastJwt = createSigner({ key: SECRET, algorithm: 'HS256' });
  const claims = () => {
    const iat = Math.floor(Date.now() / 1_000);
    return {
      iss: ISSUER,
      iat,
      nbf: iat,
      exp: iat + 300,
      jti: crypto.randomUUID(),
      webhook: { event: 'order.created', data },
    };
  };
  return compare(
    title,
    {
      'node:crypto, claims and signature only': () => floorSign(claims()),
      'nestjs-webhook-token': () => signer.sign({ event: 'order.created', data }),
      'fast-jwt': () => fastJwt(claims()),
      'jsonwebtoken, KeyObject': () => jsonwebtoken.sign(claims(), key, { algorithm: 'HS256' }),
      'jose, CryptoKey': () =>
        new SignJWT(claims()).setProtectedHeader({ alg: 'HS256', typ: 'JWT' }).sign(cryptoKey),
    },
    options,
  );
}

/** The minimal verification: the signature only, without claims. */
function floorVerify(token) {
  const dot = token.lastIndexOf('.');
  const mac = createHmac('sha256', key).update(token.slice(0, dot)).digest();
  if (!timingSafeEqual(mac, Buffer.from(token.slice(dot + 1), 'base64url')))
    throw new Error('The signature is not valid.');
  return JSON.parse(Buffer.from(token.slice(token.indexOf('.') + 1, dot), 'base64url'));
}

const HEADER = Buffer.from('{"alg":"HS256","typ":"JWT"}').toString('base64url');

function floorSign(claims) {
  const input = `${HEADER}.${Buffer.from(JSON.stringify(claims)).toString('base64url')}`;
  return `${input}.${createHmac('sha256', key).update(input).digest('base64url')}`;
}
