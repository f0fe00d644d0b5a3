import { ISSUER, NOW, SECRET } from './forge.mjs';

/** Trusts one issuer with one HS256 secret; the rest is default. */
export const BY_DEFAULT = { issuers: [{ issuer: ISSUER, secrets: [SECRET] }] };

/** Trusts one issuer with public keys. */
export function trusting(...keys) {
  return { issuers: [{ issuer: ISSUER, keys }] };
}

/** A case whose token, and body if any, are accepted. */
export function accepted(
  name,
  reason,
  token,
  { payload = 'data', bodyVerified = true, ...rest } = {},
) {
  return vector(name, reason, token, rest, { accepted: true, payload, bodyVerified });
}

/** A case whose token or body is refused. */
export function refused(name, code, reason, token, rest = {}) {
  return vector(name, reason, token, rest, { accepted: false, code });
}

/** The same two, for another wire format. */
export function casesOf(profile, defaults = {}) {
  return {
    accepted: (name, reason, token, rest = {}) =>
      accepted(name, reason, token, { profile, ...defaults, ...rest }),
    refused: (name, code, reason, token, rest = {}) =>
      refused(name, code, reason, token, { profile, ...defaults, ...rest }),
  };
}

function vector(name, reason, token, request, expect) {
  const {
    profile = 'webhook-token',
    method = 'HEAD',
    body,
    now = NOW,
    verifier = BY_DEFAULT,
  } = request;
  return {
    name,
    profile,
    reason,
    token,
    method,
    ...(body === undefined ? {} : { body: Buffer.from(body).toString('base64') }),
    now,
    verifier,
    expect,
  };
}
