import type { ProbeAnswer } from './probe.interface.js';

const HEAD_END = '\r\n\r\n';

/** An answer, and how many of the octets it took. */
interface ParsedAnswer {
  readonly answer: ProbeAnswer;
  readonly length: number;
}

/**
 * Takes an answer off what has arrived (RFC 9112, section 6.3).
 *
 * @param method - of the request: an answer to HEAD has no body, whatever its headers say
 * @param ended - whether nothing more will come
 * @returns `undefined` while it is not complete
 */
export function parseAnswer(
  bytes: Buffer,
  method: string,
  ended: boolean,
): ParsedAnswer | undefined {
  const end = bytes.indexOf(HEAD_END);
  if (end === -1) return undefined;
  const [statusLine = '', ...lines] = bytes.toString('latin1', 0, end).split('\r\n');
  const status = Number(/^HTTP\/1\.[01] (\d{3})/.exec(statusLine)?.[1] ?? 0);
  const start = end + HEAD_END.length;
  // An interim answer comes before the final one.
  if (status >= 100 && status < 200) {
    const final = parseAnswer(bytes.subarray(start), method, ended);
    return final && { ...final, length: final.length + start };
  }
  const headers = parseHeaders(lines);
  const body = parseBody(bytes.subarray(start), { method, status, headers, ended });
  if (body === undefined) return undefined;
  const answer = { status, headers, body: body.bytes.toString() };
  return { answer, length: start + body.length };
}

function parseHeaders(lines: readonly string[]): Map<string, string> {
  const headers = new Map<string, string>();
  for (const line of lines) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    const before = headers.get(name);
    headers.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  return headers;
}

interface Body {
  readonly bytes: Buffer;
  readonly length: number;
}

function parseBody(
  bytes: Buffer,
  framing: { method: string; status: number; headers: Map<string, string>; ended: boolean },
): Body | undefined {
  const { method, status, headers, ended } = framing;
  if (method === 'HEAD' || status === 204 || status === 304) {
    return { bytes: Buffer.alloc(0), length: 0 };
  }
  if (/chunked/i.test(headers.get('transfer-encoding') ?? '')) return parseChunks(bytes);
  const declared = headers.get('content-length');
  const length = declared === undefined ? bytes.length : Number(declared);
  const complete = declared === undefined ? ended : bytes.length >= length;
  return complete ? { bytes: bytes.subarray(0, length), length } : undefined;
}

function parseChunks(bytes: Buffer): Body | undefined {
  const chunks: Buffer[] = [];
  for (let at = 0; ;) {
    const lineEnd = bytes.indexOf('\r\n', at);
    if (lineEnd === -1) return undefined;
    const size = Number.parseInt(bytes.toString('latin1', at, lineEnd), 16);
    const start = lineEnd + 2;
    const next = start + size + 2;
    if (!(size >= 0) || bytes.length < next) return undefined;
    if (size === 0) return { bytes: Buffer.concat(chunks), length: next };
    chunks.push(bytes.subarray(start, start + size));
    at = next;
  }
}
