// A hand-written guard that does the work of this package: form of the token, header, duplicate members, prototypes,
// nesting, every claim, the digest of the body, and a replay record that is reserved before and committed after the
// handler. It is as fast as we could write it, with one issuer, one key, and the record in a Map.
import { createHmac, createSecretKey, hash, randomUUID, timingSafeEqual } from 'node:crypto';
import { ConflictException, UnauthorizedException } from '@nestjs/common';
import { ISSUER, SECRET } from '../event.mjs';

const MAX_TOKEN = 16_384;
const MAX_DEPTH = 64;
const MAX_NAME = 255;
/** Seconds. */
const TOLERANCE = 60;
const MAX_LIFETIME = 3_600;
/** Milliseconds for which a handled event is remembered. */
const WINDOW = 96 * 3_600_000;
const BASE64URL = /^[A-Za-z0-9_-]+$/;
const EVENT = /^[\w-]+(?:\.[\w-]+)+$/;

const key = createSecretKey(Buffer.from(SECRET));
/** Headers of tokens with a valid signature: all tokens of a sender have the same one. */
const headers = new Map();

export class HonestGuard {
  canActivate(context) {
    const http = context.switchToHttp();
    const request = http.getRequest();
    const claims = verify(bearer(request.headers));
    const event = open(request, claims);
    if (reserve(event)) {
      const response = http.getResponse();
      settle(event, response.raw ?? response);
    }
    request.webhook = event;
    return true;
  }
}

function bearer({ authorization }) {
  if (authorization?.startsWith('Bearer ') !== true) refuse('no token');
  const token = authorization.slice('Bearer '.length);
  if (token.length > MAX_TOKEN) refuse('token too large');
  return token;
}

/** @returns the claims of a valid token */
function verify(token) {
  const [header, payload, signature, more] = token.split('.');
  if (signature === undefined || more !== undefined) refuse('form');
  const expected = createHmac('sha256', key)
    .update(token.slice(0, header.length + 1 + payload.length))
    .digest('base64url');
  if (signature.length !== expected.length) refuse('signature');
  if (!timingSafeEqual(Buffer.from(signature), Buffer.from(expected))) refuse('signature');
  if (!headers.has(header)) {
    checkHeader(strictJson(decode(header)));
    if (headers.size < 256) headers.set(header, true);
  }
  const claims = strictJson(decode(payload));
  checkClaims(claims);
  return claims;
}

function checkHeader({ alg, typ, crit, b64, zip }) {
  if (alg !== 'HS256' || typ !== 'JWT') refuse('header');
  if (crit !== undefined || b64 !== undefined || zip !== undefined) refuse('header');
}

function checkClaims({ iss, aud, exp, nbf, iat, jti, txn, webhook }) {
  if (iss !== ISSUER || aud !== undefined) refuse('issuer or audience');
  const now = Date.now() / 1_000;
  if (!Number.isFinite(exp) || !Number.isFinite(iat) || exp <= iat) refuse('times');
  if (exp + TOLERANCE <= now || iat - TOLERANCE > now || exp - iat > MAX_LIFETIME) refuse('times');
  if (nbf !== undefined && !(Number.isFinite(nbf) && nbf - TOLERANCE <= now)) refuse('times');
  if (!isName(jti) || (txn !== undefined && !isName(txn))) refuse('id');
  if (typeof webhook !== 'object' || webhook === null) refuse('webhook');
  if (typeof webhook.event !== 'string' || !EVENT.test(webhook.event)) refuse('event');
}

/** Checks the body, which the body parser has read and parsed. */
function open({ method, rawBody, body }, { iss, exp, jti, txn, webhook }) {
  const { event, data, hash: expected } = webhook;
  let content;
  if (method === 'HEAD') {
    if (expected !== undefined) refuse('hash');
    content = hash('sha256', JSON.stringify(data ?? null), 'hex');
  } else {
    if (typeof expected !== 'string' || !rawBody?.length) refuse('hash');
    content = hash('sha256', rawBody, 'hex');
    if (!expected.startsWith('sha256:') || expected.slice('sha256:'.length) !== content) {
      refuse('hash');
    }
    countMembers(body, MAX_DEPTH);
  }
  return {
    id: `${iss.length}:${iss}:${txn === undefined ? 'jti' : 'txn'}:${txn ?? jti}`,
    fingerprint: `${event}\n${content}`,
    keepUntil: Math.max((exp + TOLERANCE) * 1_000, Date.now() + WINDOW),
    name: event,
    data: data ?? body,
  };
}

/** Replay records by event; in the order of their insertion, which is nearly that of their end. */
const records = new Map();

setInterval(() => {
  const now = Date.now();
  for (const [id, { keepUntil }] of records) {
    if (keepUntil > now) break;
    records.delete(id);
  }
}, 15_000).unref();

/** @returns whether the event is new */
function reserve({ id, fingerprint, keepUntil }) {
  const known = records.get(id);
  if (known !== undefined) {
    if (known.fingerprint !== fingerprint || !known.done) throw new ConflictException();
    return false;
  }
  records.set(id, { fingerprint, keepUntil, done: false, owner: randomUUID() });
  return true;
}

/** Commits the record when the answer is out, or frees the event for another attempt. */
function settle({ id }, response) {
  let settled = false;
  const end = () => {
    if (settled) return;
    settled = true;
    if (response.writableFinished && response.statusCode < 300) records.get(id).done = true;
    else records.delete(id);
  };
  response.once('finish', end).once('close', end);
}

function decode(segment) {
  if (!BASE64URL.test(segment)) refuse('base64url');
  const bytes = Buffer.from(segment, 'base64url');
  if (bytes.length !== (segment.length * 3) >> 2) refuse('base64url');
  const text = bytes.toString();
  if (text.includes('\ufffd')) refuse('UTF-8');
  return text;
}

/** Parses JSON without duplicate members, prototypes or deep nesting. */
function strictJson(text) {
  const value = JSON.parse(text);
  const members = countMembers(value, MAX_DEPTH + 2);
  let names = 0;
  for (let at = text.indexOf('":'); at !== -1; at = text.indexOf('":', at + 2)) names++;
  // A string may contain a quote and a colon, and JSON may have a space before one: count with care then.
  if (names !== members) names = text.match(/"(?:[^"\\]|\\.)*"\s*:/g)?.length;
  if (names !== members) refuse('duplicate members');
  return value;
}

function countMembers(value, levels) {
  if (typeof value !== 'object' || value === null) return 0;
  if (levels === 0) refuse('nesting');
  let count = 0;
  if (Array.isArray(value)) {
    for (const item of value) {
      if (typeof item === 'object' && item !== null) count += countMembers(item, levels - 1);
    }
    return count;
  }
  for (const name in value) {
    count++;
    const member = value[name];
    if (name === '__proto__') refuse('prototype');
    if (typeof member !== 'object' || member === null) continue;
    if (name === 'constructor' && Object.hasOwn(member, 'prototype')) refuse('prototype');
    count += countMembers(member, levels - 1);
  }
  return count;
}

function isName(value) {
  return typeof value === 'string' && value !== '' && value.length <= MAX_NAME;
}

function refuse(reason) {
  throw new UnauthorizedException(reason);
}
