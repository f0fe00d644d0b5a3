import { brotliDecompressSync, gunzipSync, inflateSync } from 'node:zlib';
import { scanJson } from '../token/json/strict-json.js';
import { DEFAULT_MAX_JSON_MEMBERS } from '../token/webhook-token.constants.js';
import type { ExplanationHintCode } from './webhook-explanation.interface.js';

/** A form of the body that the sender may have hashed. */
interface BodyVariant {
  readonly code: ExplanationHintCode;
  /** Completes "the hash is that of …". */
  readonly form: string;
  /** The sender's bytes, from those that arrived; `undefined` if the body has no such form. */
  readonly change: (body: Buffer) => Buffer | undefined;
}

/** Bytes up to which a body is decompressed. */
const MAX_DECOMPRESSED = 32 * 1024 * 1024;
const DECOMPRESS = { maxOutputLength: MAX_DECOMPRESSED };

const latin1 =
  (change: (text: string) => string) =>
  (body: Buffer): Buffer =>
    Buffer.from(change(body.toString('latin1')), 'latin1');

const json =
  (write: (value: unknown) => string) =>
  (body: Buffer): Buffer | undefined =>
    scanJson(body.toString('latin1'), { members: DEFAULT_MAX_JSON_MEMBERS })
      ? undefined
      : Buffer.from(write(JSON.parse(body.toString())));

/** Changes that happen to bodies on the way, likely ones first. Each `change` may throw. */
export const BODY_VARIANTS: readonly BodyVariant[] = [
  {
    code: 'body_newline',
    form: 'the body with a line feed at its end',
    change: latin1((text) => `${text}\n`),
  },
  {
    code: 'body_newline',
    form: 'the body without the line feed at its end',
    change: latin1((text) => text.replace(/\r?\n$/, '')),
  },
  {
    code: 'body_newline',
    form: 'the body with a carriage return and a line feed at its end',
    change: latin1((text) => `${text}\r\n`),
  },
  {
    code: 'body_reserialized',
    form: 'the same JSON without white space (JSON.stringify)',
    change: json((value) => JSON.stringify(value)),
  },
  {
    code: 'body_reserialized',
    form: 'the same JSON indented by 2 spaces',
    change: json((value) => JSON.stringify(value, undefined, 2)),
  },
  {
    code: 'body_reserialized',
    form: 'the same JSON indented by 4 spaces',
    change: json((value) => JSON.stringify(value, undefined, 4)),
  },
  {
    code: 'body_reserialized',
    form: 'the same JSON indented by tabs',
    change: json((value) => JSON.stringify(value, undefined, '\t')),
  },
  {
    code: 'body_reserialized',
    form: 'the same JSON indented by 2 spaces, with a line feed at its end',
    change: json((value) => `${JSON.stringify(value, undefined, 2)}\n`),
  },
  {
    code: 'body_reserialized',
    form: 'the same JSON with a space after each comma and colon, and with non-ASCII characters escaped (Python)',
    change: json((value) => escapeNonAscii(spaced(value))),
  },
  {
    code: 'body_reserialized',
    form: 'the same JSON with a space after each comma and colon',
    change: json(spaced),
  },
  {
    code: 'body_reserialized',
    form: 'the same JSON with escaped slashes and non-ASCII characters (PHP)',
    change: json((value) => escapeNonAscii(JSON.stringify(value).replaceAll('/', '\\/'))),
  },
  {
    code: 'body_reserialized',
    form: 'the same JSON with non-ASCII characters escaped',
    change: json((value) => escapeNonAscii(JSON.stringify(value))),
  },
  {
    code: 'body_reserialized',
    form: 'the string inside the JSON string that arrived: the body was serialised twice',
    change: json((value) => (typeof value === 'string' ? value : '')),
  },
  {
    code: 'body_line_endings',
    form: 'the body with line feeds instead of carriage return and line feed',
    change: latin1((text) => text.replaceAll('\r\n', '\n')),
  },
  {
    code: 'body_line_endings',
    form: 'the body with carriage return and line feed instead of line feeds',
    change: latin1((text) => text.replace(/\r?\n/g, '\r\n')),
  },
  {
    code: 'body_bom',
    form: 'the body without the byte order mark at its start',
    change: latin1((text) => text.replace(/^\u00EF\u00BB\u00BF/, '')),
  },
  {
    code: 'body_bom',
    form: 'the body with a byte order mark at its start',
    change: latin1((text) => `\u00EF\u00BB\u00BF${text}`),
  },
  {
    code: 'body_charset',
    form: 'the body before its UTF-8 was read as Latin-1 and encoded as UTF-8 again',
    change: (body) => Buffer.from(body.toString('utf8'), 'latin1'),
  },
  {
    code: 'body_charset',
    form: 'the body in UTF-8, which arrived in Latin-1',
    change: (body) => Buffer.from(body.toString('latin1'), 'utf8'),
  },
  {
    code: 'body_compressed',
    form: 'the body decompressed with gzip',
    change: (body) => gunzipSync(body, DECOMPRESS),
  },
  {
    code: 'body_compressed',
    form: 'the body decompressed with deflate',
    change: (body) => inflateSync(body, DECOMPRESS),
  },
  {
    code: 'body_compressed',
    form: 'the body decompressed with brotli',
    change: (body) => brotliDecompressSync(body, DECOMPRESS),
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
