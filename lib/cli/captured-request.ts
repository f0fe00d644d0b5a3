import { unpadded } from '../token/decoding.js';
import { isObject, parseJson } from '../token/json.js';
import { UsageError } from './arguments.js';
import { withoutMark } from './text-encoding.js';

/** A captured request with the exact bytes of its body. */
interface CapturedRequest {
  readonly method: string;
  /** A repeated header has all its values. */
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly body: Buffer;
}

const REQUEST_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+) \S+(?: HTTP\/\d(?:\.\d)?)?$/;

/**
 * Reads a captured request: raw HTTP text, or JSON `{ method, headers, body | bodyBase64 }`.
 *
 * @throws {@link UsageError}
 */
export function readCapturedRequest(input: Buffer): CapturedRequest {
  const bytes = withoutMark(input);
  return /^\s*\{/.test(bytes.subarray(0, 64).toString()) ? fromJson(bytes) : fromHttp(bytes);
}

function fromJson(bytes: Buffer): CapturedRequest {
  const json = parseJson(bytes.toString());
  if (!isObject(json)) {
    throw new UsageError('The captured request begins with "{", but is not valid JSON.');
  }
  const { method, headers, body, bodyBase64 } = json;
  if (typeof method !== 'string' || typeof headers !== 'object' || headers === null) {
    throw new UsageError(
      'The JSON is not a request: write { "method": "POST", "headers": { … }, "body": "…" }, or "bodyBase64" instead of "body".',
    );
  }
  const values = Object.values(headers).flat();
  if (!values.every((value) => typeof value === 'string')) {
    throw new UsageError('A header must be a string or an array of strings.');
  }
  if (body !== undefined && typeof body !== 'string') {
    throw new UsageError(
      '"body" must be a string: pass the body exactly as it arrived, or pass "bodyBase64". A parsed JSON value would be serialised again, which changes its hash.',
    );
  }
  return {
    method,
    headers: headers as CapturedRequest['headers'],
    body: bodyBase64 === undefined ? Buffer.from(body ?? '') : fromBase64(bodyBase64),
  };
}

/** Checks the encoding, because Node's decoder skips invalid characters and would return other bytes. */
function fromBase64(value: unknown): Buffer {
  const bytes = typeof value === 'string' ? Buffer.from(value, 'base64') : undefined;
  if (bytes === undefined || unpadded(bytes.toString('base64')) !== unpadded(value as string)) {
    throw new UsageError('"bodyBase64" must be a base64 string.');
  }
  return bytes;
}

function fromHttp(bytes: Buffer): CapturedRequest {
  const { head, rest } = splitHead(bytes);
  const [first = '', ...lines] = head.split(/\r?\n/);
  const method = REQUEST_LINE.exec(first)?.[1];
  if (method === undefined) {
    throw new UsageError(
      'The captured request must begin with a request line, such as "POST /webhooks HTTP/1.1".',
    );
  }
  const headers = new Map<string, string[]>();
  for (const line of lines) {
    const colon = line.indexOf(':');
    if (colon <= 0) {
      throw new UsageError(
        'A line after the request line is not a header: write "Name: value" lines, an empty line, then the body.',
      );
    }
    const name = line.slice(0, colon).trim().toLowerCase();
    const values = headers.get(name) ?? [];
    values.push(line.slice(colon + 1).trim());
    headers.set(name, values);
  }
  const isChunked = headers.get('transfer-encoding')?.at(-1)?.toLowerCase() === 'chunked';
  return {
    method,
    headers: Object.fromEntries(headers),
    body: isChunked ? decodeChunks(rest) : rest,
  };
}

function splitHead(bytes: Buffer): { head: string; rest: Buffer } {
  const ends = ['\r\n\r\n', '\n\n']
    .map((end) => ({ at: bytes.indexOf(end), length: end.length }))
    .filter(({ at }) => at !== -1)
    .sort((one, other) => one.at - other.at);
  const [end = { at: bytes.length, length: 0 }] = ends;
  const head = bytes.subarray(0, end.at).toString('latin1').trim();
  return { head, rest: bytes.subarray(end.at + end.length) };
}

/** Decodes chunks; returns the bytes as they are if they are not chunks, because some tools capture the decoded body. */
function decodeChunks(bytes: Buffer): Buffer {
  const chunks: Buffer[] = [];
  let at = 0;
  for (;;) {
    const lineEnd = bytes.indexOf('\r\n', at);
    const size = /^([0-9a-fA-F]{1,8})(?:;.*)?$/.exec(bytes.toString('latin1', at, lineEnd))?.[1];
    if (lineEnd === -1 || size === undefined) return bytes;
    const length = Number.parseInt(size, 16);
    if (length === 0) return Buffer.concat(chunks);
    chunks.push(bytes.subarray(lineEnd + 2, lineEnd + 2 + length));
    at = lineEnd + 2 + length + 2;
  }
}

interface WrittenRequest {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | undefined;
}

/** A request as JSON that {@link readCapturedRequest} reads; a body that is not UTF-8 is in base64. */
export function capturedJson({ method, headers, body }: WrittenRequest): Record<string, unknown> {
  if (body === undefined) return { method, headers };
  const text = body.toString();
  return Buffer.from(text).equals(body)
    ? { method, headers, body: text }
    : { method, headers, bodyBase64: body.toString('base64') };
}

/** A request as raw HTTP that {@link readCapturedRequest} reads. */
export function capturedHttp({ method, headers, body }: WrittenRequest): Buffer {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  const head = `${[`${method} /webhooks HTTP/1.1`, ...lines].join('\r\n')}\r\n\r\n`;
  return Buffer.concat([Buffer.from(head), body ?? Buffer.alloc(0)]);
}
