import { isObject } from '../token/json/strict-json.js';
import { digest, type PayloadHash } from '../token/payload-hash.js';
import { HASH_ALGORITHMS } from '../token/webhook-token.constants.js';
import type { VerifiedWebhookToken } from '../token/webhook-claims.interface.js';
import { BODY_VARIANTS } from './body-variants.js';
import { expectedHash } from './expected-hash.js';
import type { ObservedRequest } from './observed-request.js';
import type { Refusal } from './refusal.js';
import type { ExplanationHint } from './webhook-explanation.interface.js';

/** Bytes of a body whose other forms are tried: each costs a copy of it. */
const MOST_TRIED = 4 * 1024 * 1024;

/** What the form of a body tells of its way. */
const CAUSES: Readonly<Record<string, string>> = {
  body_reserialized:
    'something between us parsed the body and wrote it anew, or the sender digests another text than it sends',
  body_compressed:
    'the sender digests before it compresses; the hash is over the bytes on the wire, so send them as they are',
  body_charset: 'something between us, or the HTTP client, converted the charset',
};
const OTHER_CAUSE =
  'something between us changed the body, or the sender digests another text than it sends';

/** What may have happened to a body; only for a token that holds, which then says what was sent. */
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
        detail: `the body has ${body?.length ?? '?'} bytes, and the token ${data === undefined ? 'neither hash nor data' : 'carries the data itself'}: the sender has to put the digest of the body into webhook.hash, or to send no body`,
      });
      break;
    case 'hash_unsupported':
      if (incoming.method === 'HEAD') {
        hints.push({
          code: 'hash_on_head',
          detail:
            'the token names the digest of a body, so it was made for a POST; the request came as HEAD',
        });
      } else if (body !== undefined && hash !== undefined) hints.push(...spellingHints(body, hash));
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
          detail: `Content-Length declares ${Number(declared)} bytes, and ${body.length} arrived`,
        },
      ];
}

/** A digest that is right, and spelt in a way that receivers do not take. */
function spellingHints(body: Buffer, hash: string): ExplanationHint[] {
  const given = hash.replace(/^[A-Za-z0-9-]+[:=]/, '');
  for (const algorithm of HASH_ALGORITHMS) {
    const hex = digest(algorithm, body).slice(algorithm.length + 1);
    const bytes = Buffer.from(hex, 'hex');
    const spellings: [string, string][] = [
      [given.toLowerCase(), hex],
      [given, bytes.toString('base64')],
      [given, bytes.toString('base64url')],
    ];
    if (spellings.some(([one, other]) => one === other)) {
      return [
        {
          code: 'digest_encoding',
          detail: `the hash is the ${algorithm} of the body in another spelling: write "${algorithm}:" and ${hex.length} hexadecimal digits`,
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
  // A wire format may name more of the body than one digest.
  if (found === expected) {
    const other =
      typeof size === 'number' && size !== body.length
        ? `webhook.data.size says ${size}`
        : 'the other digest in the token is that of another body, or the request does not declare its length';
    return [
      {
        code: 'body_size',
        detail: `the ${body.length} bytes that arrived have ${found}, as the token names; but ${other}`,
      },
    ];
  }
  const hints: ExplanationHint[] = [
    {
      code: 'body_digest',
      detail: `the ${body.length} bytes that arrived have ${found}, and the token names ${expected}`,
    },
  ];
  if (body.length === 0) {
    hints.push({
      code: 'body_dropped',
      detail: 'no body arrived, and the token names one: it was dropped on the way',
    });
  } else if (expected === digest(algorithm, Buffer.alloc(0))) {
    hints.push({
      code: 'body_added',
      detail: 'the hash is that of an empty body: the sender digests before it writes the body',
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
        detail: `the digest is right, and is made by ${algorithm}: the token names another algorithm`,
      };
}

function otherForm(
  body: Buffer,
  algorithm: (typeof HASH_ALGORITHMS)[number],
  expected: string,
): ExplanationHint | undefined {
  if (body.length > MOST_TRIED) return undefined;
  for (const { code, form, change } of BODY_VARIANTS) {
    if (digestOf(() => change(body), algorithm) === expected) {
      return { code, detail: `the hash is that of ${form}: ${CAUSES[code] ?? OTHER_CAUSE}` };
    }
  }
  return undefined;
}

/** What is not JSON, nests too deep to be written or is not compressed has no such form. */
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
