// Hand-written guards. All but `honest` make only the checks that their library or author provides.
import { createHash, createHmac, createSecretKey, timingSafeEqual } from 'node:crypto';
import { UnauthorizedException } from '@nestjs/common';
import { jwtVerify } from 'jose';
import jsonwebtoken from 'jsonwebtoken';
import { Webhook } from 'standardwebhooks';
import { ISSUER, SECRET } from '../event.mjs';
import { HonestGuard } from './honest-guard.mjs';

const key = createSecretKey(Buffer.from(SECRET));
const bytes = new TextEncoder().encode(SECRET);
const webhook = new Webhook(Buffer.from(SECRET).toString('base64'));

function guard(check) {
  return class {
    canActivate(context) {
      return check(context.switchToHttp().getRequest());
    }
  };
}

function bearer({ headers }) {
  const { authorization } = headers;
  if (!authorization?.startsWith('Bearer ')) throw new UnauthorizedException();
  return authorization.slice(7);
}

/** Whether the digest in the token, if any, is that of the body. */
function hold(request, claims) {
  const { rawBody } = request;
  if (!rawBody?.length) return true;
  const [algorithm, expected] = claims.webhook.hash.split(':');
  if (createHash(algorithm).update(rawBody).digest('hex') !== expected) {
    throw new UnauthorizedException();
  }
  return true;
}

export const GUARDS = {
  /** The minimal guard: signature, issuer, expiry, digest. */
  floor: guard((request) => {
    const token = bearer(request);
    const dot = token.lastIndexOf('.');
    const mac = createHmac('sha256', key).update(token.slice(0, dot)).digest();
    const found = Buffer.from(token.slice(dot + 1), 'base64url');
    if (found.length !== mac.length || !timingSafeEqual(mac, found)) {
      throw new UnauthorizedException();
    }
    const claims = JSON.parse(Buffer.from(token.slice(token.indexOf('.') + 1, dot), 'base64url'));
    if (claims.iss !== ISSUER || claims.exp * 1_000 < Date.now()) throw new UnauthorizedException();
    return hold(request, claims);
  }),
  honest: HonestGuard,
  jose: guard(async (request) => {
    try {
      const options = { algorithms: ['HS256'], issuer: ISSUER };
      const { payload } = await jwtVerify(bearer(request), bytes, options);
      return hold(request, payload);
    } catch {
      throw new UnauthorizedException();
    }
  }),
  jsonwebtoken: guard((request) => {
    try {
      const options = { algorithms: ['HS256'], issuer: ISSUER };
      return hold(request, jsonwebtoken.verify(bearer(request), key, options));
    } catch {
      throw new UnauthorizedException();
    }
  }),
  standardwebhooks: guard((request) => {
    try {
      webhook.verify(request.rawBody, request.headers);
      return true;
    } catch {
      throw new UnauthorizedException();
    }
  }),
};
