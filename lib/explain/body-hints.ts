import { isObject } from '../token/json/strict-json.js';
import {
  digest,
  isHashAlgorithm,
  parsePayloadHash,
  type PayloadHash,
} from '../token/payload-hash.js';
import type { VerifiedWebhookToken } from '../token/webhook-claims.interface.js';
import { HASH_ALGORITHMS } from '../token/webhook-token.constants.js';
import { BODY_VARIANTS } from './body-variants.js';
import type { ObservedRequest } from './observed-request.js';
import type { Refusal } from './refusal.js';
import type { ExplanationHint } from './webhook-explanation.interface.js';

/** Bytes up to which variants of a body are tried; each one copies it. */
const MAX_VARIANT_BYTES = 4 * 1024 * 1024;

/** The likely cause of each kind of change. */
const CAUSES: Readonly<Record<string, string>> = {
  body_reserialized:
    'a proxy or client parsed and re-serialised the body, or the sender hashes other bytes than it sends',
  body_compressed:
    'the sender hashes before it compresses; the hash covers the bytes on the wire, so send the body uncompressed',
  body_charset: 'a proxy or the HTTP client converted the charset',
};
const OTHER_CAUSE = 'a proxy changed the body, or the sender hashes other bytes than it sends';

/** Hints about the body. They need a verified token, which says what was sent. */
export function bodyHints(
  observed: ObservedRequest,
  refusal: Refusal,
  claims: VerifiedWebhookToken['claims'] | undefined,
): readonly ExplanationHint[] {
  if (claims === undefined) return [];
  const { hash, data } = claims.webhook;
  const { body, incoming } = observed;
  const hints = lengthHints(observed);
  switch (refusal.code) {
    case 'hash_required':
      hints.push({
        code: 'body_unauthenticated',
        detail: `the body has ${body?.length ?? '?'} bytes, and the token has ${data === undefined ? 'neither hash nor data' : 'the data itself'}: put the digest of the body into webhook.hash, or send no body`,
      });
      break;
    case 'hash_unsupported':
      if (incoming.method === 'HEAD') {
        hints.push({
          code: 'hash_on_head',
          detail:
            'the token has the hash of a body, so it was made for a POST, but the request is a HEAD',
        });
      } else if (body !== undefined && hash !== undefined) hints.push(...encodingHints(body, hash));
      break;
    case 'hash_mismatch':
      if (body !== undefined)
        hints.push(
          ...mismatchHints(
            body,
            expectedHash({ ...claims.webhook }),
            isObject(data) ? data['size'] : undefined,
          ),
        );
      break;
    default:
  }
  return hints;
}

function lengthHints({ body, incoming }: ObservedRequest): ExplanationHint[] {
  const declared = incoming.headers.get('content-length');
  if (declared === undefined || body === undefined || incoming.method !== 'POST') return [];
  return Number(declared) === body.length
    ? []
    : [
        {
          code: 'body_length',
          detail: `Content-Length declares ${Number(declared)} bytes, but ${body.length} arrived`,
        },
      ];
}

/** A correct digest in an encoding that receivers refuse. */
function encodingHints(body: Buffer, hash: string): ExplanationHint[] {
  const given = hash.replace(/^[A-Za-z0-9-]+[:=]/, '');
  for (const algorithm of HASH_ALGORITHMS) {
    const hex = digest(algorithm, body).slice(algorithm.length + 1);
    const bytes = Buffer.from(hex, 'hex');
    const encodings: [string, string][] = [
      [given.toLowerCase(), hex],
      [given, bytes.toString('base64')],
      [given, bytes.toString('base64url')],
    ];
    if (encodings.some(([one, other]) => one === other)) {
      return [
        {
          code: 'digest_encoding',
          detail: `the hash is the ${algorithm} of the body in another encoding: write "${algorithm}:" and ${hex.length} hexadecimal digits`,
        },
      ];
    }
  }
  return [];
}

function mismatchHints(
  body: Buffer,
  hash: PayloadHash | undefined,
  size: unknown,
): ExplanationHint[] {
  if (hash === undefined) return [];
  const { algorithm, hex } = hash;
  const expected = `${algorithm}:${hex}`;
  const found = digest(algorithm, body);
  // A wire format may also name the size, or a second digest.
  if (found === expected) {
    const other =
      typeof size === 'number' && size !== body.length
        ? `webhook.data.size says ${size}`
        : 'another digest in the token does not match, or the request does not declare its length';
    return [
      {
        code: 'body_size',
        detail: `the ${body.length} bytes that arrived have the hash in the token, ${found}, but ${other}`,
      },
    ];
  }
  const hints: ExplanationHint[] = [
    {
      code: 'body_digest',
      detail: `the ${body.length} bytes that arrived have the hash ${found}, but the token has ${expected}`,
    },
  ];
  if (body.length === 0) {
    hints.push({
      code: 'body_dropped',
      detail: 'no body arrived, but the token has the hash of one: it was dropped on the way',
    });
  } else if (expected === digest(algorithm, Buffer.alloc(0))) {
    hints.push({
      code: 'body_added',
      detail: 'the hash is that of an empty body: the sender hashes before it writes the body',
    });
  } else {
    const cause = otherAlgorithm(body, hex) ?? otherForm(body, algorithm, expected);
    if (cause !== undefined) hints.push(cause);
  }
  return hints;
}

function otherAlgorithm(body: Buffer, hex: string): ExplanationHint | undefined {
  const algorithm = HASH_ALGORITHMS.find((name) => digest(name, body) === `${name}:${hex}`);
  return algorithm === undefined
    ? undefined
    : {
        code: 'digest_algorithm',
        detail: `the hash is the ${algorithm} of the body, but the token names another algorithm`,
      };
}

function otherForm(
  body: Buffer,
  algorithm: (typeof HASH_ALGORITHMS)[number],
  expected: string,
): ExplanationHint | undefined {
  if (body.length > MAX_VARIANT_BYTES) return undefined;
  for (const { code, form, change } of BODY_VARIANTS) {
    if (digestOf(() => change(body), algorithm) === expected) {
      return { code, detail: `the hash is that of ${form}: ${CAUSES[code] ?? OTHER_CAUSE}` };
    }
  }
  return undefined;
}

/** `undefined` if the body has no such form, for example because it is not JSON or not compressed. */
function digestOf(
  make: () => Buffer | undefined,
  algorithm: (typeof HASH_ALGORITHMS)[number],
): string | undefined {
  try {
    const bytes = make();
    return bytes === undefined ? undefined : digest(algorithm, bytes);
  } catch {
    return undefined;
  }
}

/**
 * Reads the digest of the body from a token of any wire format.
 *
 * @param webhook - the claim: `hash` as `sha256:…` or, in the second Internet-Draft, `sha-256:…`; in the first,
 *   `data` as `{ hash, hashAlg }` with SHA3-256 where no algorithm is named
 * @returns `undefined` if there is none that can be compared
 */
export function expectedHash(webhook: Readonly<Record<string, unknown>>): PayloadHash | undefined {
  const { hash, data } = webhook;
  if (typeof hash === 'string') return read(hash);
  if (!isObject(data) || typeof data['hash'] !== 'string') return undefined;
  const { hashAlg = 'SHA3-256' } = data;
  return typeof hashAlg === 'string' ? read(`${hashAlg}:${data['hash']}`) : undefined;
}

function read(text: string): PayloadHash | undefined {
  const colon = text.indexOf(':');
  const name = text.slice(0, colon).toLowerCase().replace(/^sha-/, 'sha');
  if (!isHashAlgorithm(name)) return undefined;
  try {
    return parsePayloadHash(`${name}${text.slice(colon)}`);
  } catch {
    return undefined;
  }
}
