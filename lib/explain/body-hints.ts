import { brotliDecompressSync, gunzipSync, inflateSync } from 'node:zlib';
import { isObject, scanJson } from '../token/json.js';
import {
  digest,
  isHashAlgorithm,
  parsePayloadHash,
  type PayloadHash,
} from '../token/payload-hash.js';
import type { WebhookTokenClaims } from '../token/webhook-claims.interface.js';
import { DEFAULT_MAX_JSON_MEMBERS, HASH_ALGORITHMS } from '../token/webhook-token.constants.js';
import type { ObservedRequest } from './observed-request.js';
import type { Refusal } from './refusal.js';
import type { AddHint, ExplanationHintCode } from './webhook-explanation.interface.js';

/** Adds hints about the body. They need a verified token, which says what was sent. */
export function addBodyHints(
  { body, incoming }: ObservedRequest,
  { code }: Refusal,
  { webhook }: WebhookTokenClaims,
  add: AddHint,
): void {
  const { hash, data } = webhook;
  const declared = incoming.headers.get('content-length');
  if (incoming.method === 'POST' && body !== undefined && declared !== undefined) {
    const length = Number(declared);
    if (length !== body.length) {
      add('body_length', `Content-Length declares ${length} bytes, but ${body.length} arrived`);
    }
  }
  if (code === 'hash_required') {
    const instead = data === undefined ? 'neither hash nor data' : 'the data itself';
    add(
      'body_unauthenticated',
      `the body has ${body?.length ?? '?'} bytes, and the token has ${instead}: put the digest of the body into webhook.hash, or send no body`,
    );
  } else if (code === 'hash_unsupported' && incoming.method === 'HEAD') {
    add(
      'hash_on_head',
      'the token has the hash of a body, so it was made for a POST, but the request is a HEAD',
    );
  } else if (code === 'hash_unsupported' && body !== undefined && hash !== undefined) {
    addEncodingHint(body, hash, add);
  } else if (code === 'hash_mismatch' && body !== undefined) {
    const expected = expectedHash({ ...webhook });
    const size = isObject(data) ? data['size'] : undefined;
    if (expected !== undefined) addMismatchHints(body, expected, size, add);
  }
}

/** A correct digest in an encoding that receivers refuse. */
function addEncodingHint(body: Buffer, hash: string, add: AddHint): void {
  const given = hash.replace(/^[A-Za-z0-9-]+[:=]/, '');
  const algorithm = HASH_ALGORITHMS.find((name) => {
    const bytes = Buffer.from(digest(name, body).slice(name.length + 1), 'hex');
    const isHex = given.toLowerCase() === bytes.toString('hex');
    return isHex || given === bytes.toString('base64') || given === bytes.toString('base64url');
  });
  if (algorithm === undefined) return;
  const digits = digest(algorithm, body).length - algorithm.length - 1;
  add(
    'digest_encoding',
    `the hash is the ${algorithm} of the body in another encoding: write "${algorithm}:" and ${digits} hexadecimal digits`,
  );
}

function addMismatchHints(
  body: Buffer,
  { algorithm, hex }: PayloadHash,
  size: unknown,
  add: AddHint,
): void {
  const expected = `${algorithm}:${hex}`;
  const found = digest(algorithm, body);
  // A wire format may also name the size, or a second digest.
  if (found === expected) {
    const other =
      typeof size === 'number' && size !== body.length
        ? `webhook.data.size says ${size}`
        : 'another digest in the token does not match, or the request does not declare its length';
    add(
      'body_size',
      `the ${body.length} bytes that arrived have the hash in the token, ${found}, but ${other}`,
    );
    return;
  }
  add(
    'body_digest',
    `the ${body.length} bytes that arrived have the hash ${found}, but the token has ${expected}`,
  );
  const otherAlgorithm = HASH_ALGORITHMS.find((name) => digest(name, body) === `${name}:${hex}`);
  if (body.length === 0) {
    add(
      'body_dropped',
      'no body arrived, but the token has the hash of one: it was dropped on the way',
    );
  } else if (expected === digest(algorithm, Buffer.alloc(0))) {
    add(
      'body_added',
      'the hash is that of an empty body: the sender hashes before it writes the body',
    );
  } else if (otherAlgorithm !== undefined) {
    add(
      'digest_algorithm',
      `the hash is the ${otherAlgorithm} of the body, but the token names another algorithm`,
    );
  } else {
    const variant = findBodyVariant(body, (bytes) => digest(algorithm, bytes) === expected);
    if (variant === undefined) return;
    add(variant.code, `the hash is that of ${variant.form}: ${variant.cause}`);
  }
}

/** Finds a change of the body that explains why its digest or signature does not hold. */
export function findBodyVariant(
  body: Buffer,
  isSent: (bytes: Buffer) => boolean,
): { code: ExplanationHintCode; form: string; cause: string } | undefined {
  if (body.length > MAX_VARIANT_BYTES) return undefined;
  for (const { code, cause = OTHER_CAUSE, forms } of BODY_VARIANTS) {
    for (const [form, change] of forms) {
      try {
        const bytes = change(body);
        if (bytes !== undefined && isSent(bytes)) return { code, form, cause };
      } catch {
        // The body has no such form: it is not JSON, or not compressed.
      }
    }
  }
  return undefined;
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
  if (typeof hash === 'string') return readHash(hash);
  if (!isObject(data) || typeof data['hash'] !== 'string') return undefined;
  const { hashAlg = 'SHA3-256' } = data;
  return typeof hashAlg === 'string' ? readHash(`${hashAlg}:${data['hash']}`) : undefined;
}

function readHash(text: string): PayloadHash | undefined {
  const colon = text.indexOf(':');
  const name = text.slice(0, colon).toLowerCase().replace(/^sha-/, 'sha');
  if (!isHashAlgorithm(name)) return undefined;
  try {
    return parsePayloadHash(`${name}${text.slice(colon)}`);
  } catch {
    return undefined;
  }
}

/** Bytes up to which variants of a body are tried; each one copies it. */
const MAX_VARIANT_BYTES = 4 * 1024 * 1024;
/** Bytes up to which a body is decompressed. */
const DECOMPRESS = { maxOutputLength: 32 * 1024 * 1024 };

/** The sender's bytes, from those that arrived; `undefined`, or an error, if the body has no such form. */
type BodyChange = (body: Buffer) => Buffer | undefined;

/** A kind of change that happens to bodies on the way. */
interface BodyVariants {
  readonly code: ExplanationHintCode;
  /** The likely cause; default {@link OTHER_CAUSE}. */
  readonly cause?: string;
  /** Each form completes "the hash is that of …". */
  readonly forms: readonly (readonly [form: string, change: BodyChange])[];
}

const OTHER_CAUSE = 'a proxy changed the body, or the sender hashes other bytes than it sends';

const latin1 =
  (change: (text: string) => string): BodyChange =>
  (body) =>
    Buffer.from(change(body.toString('latin1')), 'latin1');

const json =
  (write: (value: unknown) => string): BodyChange =>
  (body) =>
    scanJson(body.toString('latin1'), { members: DEFAULT_MAX_JSON_MEMBERS })
      ? undefined
      : Buffer.from(write(JSON.parse(body.toString())));

const indented = (indent: string | number): BodyChange =>
  json((value) => JSON.stringify(value, undefined, indent));

/** Likely changes first. */
const BODY_VARIANTS: readonly BodyVariants[] = [
  {
    code: 'body_newline',
    forms: [
      ['the body with a line feed at its end', latin1((text) => `${text}\n`)],
      ['the body without the line feed at its end', latin1((text) => text.replace(/\r?\n$/, ''))],
      [
        'the body with a carriage return and a line feed at its end',
        latin1((text) => `${text}\r\n`),
      ],
    ],
  },
  {
    code: 'body_reserialized',
    cause:
      'a proxy or client parsed and re-serialised the body, or the sender hashes other bytes than it sends',
    forms: [
      [
        'the same JSON without white space (JSON.stringify)',
        json((value) => JSON.stringify(value)),
      ],
      ['the same JSON indented by 2 spaces', indented(2)],
      ['the same JSON indented by 4 spaces', indented(4)],
      ['the same JSON indented by tabs', indented('\t')],
      [
        'the same JSON indented by 2 spaces, with a line feed at its end',
        json((value) => `${JSON.stringify(value, undefined, 2)}\n`),
      ],
      [
        'the same JSON with a space after each comma and colon, and with non-ASCII characters escaped (Python)',
        json((value) => escapeNonAscii(spaced(value))),
      ],
      ['the same JSON with a space after each comma and colon', json(spaced)],
      [
        'the same JSON with escaped slashes and non-ASCII characters (PHP)',
        json((value) => escapeNonAscii(JSON.stringify(value).replaceAll('/', '\\/'))),
      ],
      [
        'the same JSON with non-ASCII characters escaped',
        json((value) => escapeNonAscii(JSON.stringify(value))),
      ],
      [
        'the string inside the JSON string that arrived: the body was serialised twice',
        json((value) => (typeof value === 'string' ? value : '')),
      ],
    ],
  },
  {
    code: 'body_line_endings',
    forms: [
      [
        'the body with line feeds instead of carriage return and line feed',
        latin1((text) => text.replaceAll('\r\n', '\n')),
      ],
      [
        'the body with carriage return and line feed instead of line feeds',
        latin1((text) => text.replace(/\r?\n/g, '\r\n')),
      ],
    ],
  },
  {
    code: 'body_bom',
    forms: [
      [
        'the body without the byte order mark at its start',
        latin1((text) => text.replace(/^\u00EF\u00BB\u00BF/, '')),
      ],
      [
        'the body with a byte order mark at its start',
        latin1((text) => `\u00EF\u00BB\u00BF${text}`),
      ],
    ],
  },
  {
    code: 'body_charset',
    cause: 'a proxy or the HTTP client converted the charset',
    forms: [
      [
        'the body before its UTF-8 was read as Latin-1 and encoded as UTF-8 again',
        (body) => Buffer.from(body.toString('utf8'), 'latin1'),
      ],
      [
        'the body in UTF-8, which arrived in Latin-1',
        (body) => Buffer.from(body.toString('latin1'), 'utf8'),
      ],
    ],
  },
  {
    code: 'body_compressed',
    cause:
      'the sender hashes before it compresses; the hash covers the bytes on the wire, so send the body uncompressed',
    forms: [
      ['the body decompressed with gzip', (body) => gunzipSync(body, DECOMPRESS)],
      ['the body decompressed with deflate', (body) => inflateSync(body, DECOMPRESS)],
      ['the body decompressed with brotli', (body) => brotliDecompressSync(body, DECOMPRESS)],
    ],
  },
];

function spaced(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(spaced).join(', ')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value).map(
    ([name, one]) => `${JSON.stringify(name)}: ${spaced(one)}`,
  );
  return `{${members.join(', ')}}`;
}

function escapeNonAscii(text: string): string {
  return text.replace(
    /[\u0080-\uFFFF]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
