/** A request that was written down, with the exact bytes of its body. */
interface CapturedRequest {
  readonly method: string;
  /** Every value of a header that came more than once. */
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly body: Buffer;
}

const REQUEST_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+) \S+(?: HTTP\/\d(?:\.\d)?)?$/;

/** What is no captured request; the message names the remedy, and quotes nothing. */
export class UnreadableCaptureError extends Error {}

/**
 * Reads a captured request: raw HTTP text, or JSON `{ method, headers, body | bodyBase64 }`.
 *
 * @throws {@link UnreadableCaptureError}
 */
export function readCapturedRequest(bytes: Buffer): CapturedRequest {
  return /^(?:\uFEFF|\s)*\{/.test(bytes.subarray(0, 64).toString())
    ? fromJson(bytes)
    : fromHttp(bytes);
}

function fromJson(bytes: Buffer): CapturedRequest {
  const { method, headers, body, bodyBase64 } = parsed(bytes);
  if (typeof method !== 'string' || typeof headers !== 'object' || headers === null) {
    throw new UnreadableCaptureError(
      'The JSON is no request: write { "method": "POST", "headers": { … }, "body": "…" }, or bodyBase64 in place of body.',
    );
  }
  const values = Object.values(headers).flat();
  if (!values.every((value) => typeof value === 'string')) {
    throw new UnreadableCaptureError('A header is no text, and no list of texts.');
  }
  if (body !== undefined && typeof body !== 'string') {
    throw new UnreadableCaptureError(
      'The member "body" is no text: give the body exactly as it came, as a text or as bodyBase64. A JSON value would have to be written anew, and has another digest then.',
    );
  }
  return {
    method,
    headers: headers as CapturedRequest['headers'],
    body: bodyBase64 === undefined ? Buffer.from(body ?? '') : fromBase64(bodyBase64),
  };
}

/** Node's decoder skips what it does not know, and the digest would be that of other bytes. */
function fromBase64(text: unknown): Buffer {
  const bytes = typeof text === 'string' ? Buffer.from(text, 'base64') : undefined;
  if (bytes === undefined || unpadded(bytes.toString('base64')) !== unpadded(text as string)) {
    throw new UnreadableCaptureError('The member "bodyBase64" is no base64.');
  }
  return bytes;
}

function unpadded(base64: string): string {
  return base64.replace(/=+$/, '');
}

function parsed(bytes: Buffer): Record<string, unknown> {
  try {
    return JSON.parse(bytes.toString().replace(/^\uFEFF/, '')) as Record<string, unknown>;
  } catch {
    // V8's message would quote the capture, which holds the token.
    throw new UnreadableCaptureError('The captured request begins with "{" and is no JSON.');
  }
}

function fromHttp(bytes: Buffer): CapturedRequest {
  const { head, rest } = splitHead(bytes);
  const [first = '', ...lines] = head.split(/\r?\n/);
  const method = REQUEST_LINE.exec(first)?.[1];
  if (method === undefined) {
    throw new UnreadableCaptureError(
      'The captured request does not begin with a request line like "POST /webhooks HTTP/1.1".',
    );
  }
  const headers = new Map<string, string[]>();
  for (const line of lines) {
    const colon = line.indexOf(':');
    if (colon <= 0) {
      throw new UnreadableCaptureError(
        'A line of the head is no header: between request line and body there are "Name: value" lines and one empty line.',
      );
    }
    const name = line.slice(0, colon).trim().toLowerCase();
    headers.set(name, [...(headers.get(name) ?? []), line.slice(colon + 1).trim()]);
  }
  const isChunked = headers.get('transfer-encoding')?.at(-1)?.toLowerCase() === 'chunked';
  return { method, headers: Object.fromEntries(headers), body: isChunked ? unchunked(rest) : rest };
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

/** Takes chunks apart as far as they are chunks; some tools write down a body that is put together already. */
function unchunked(bytes: Buffer): Buffer {
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
